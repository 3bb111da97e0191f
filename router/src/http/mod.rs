//! The HTTP surface: paths, bodies, connections. Handlers parse, wait and answer; they decide nothing.

mod body;
mod generate;
mod metrics;
mod patient;
mod routes;
mod server;

pub use metrics::serve_metrics;
pub(crate) use routes::{App, routes};
pub(crate) use server::Server;
