//! The HTTP surface: paths, bodies, connections. Handlers parse, wait and answer; they decide nothing.

mod app;
mod bodies;
mod body;
mod connections;
mod cors;
mod generate;
mod identify;
mod lenient;
mod models;
mod ops;
mod pages;
mod patient;
mod places;
mod prompts;
mod responses;
mod routes;
mod server;
mod shrink;
mod unread;

pub(crate) use app::App;
pub(crate) use bodies::Bodies;
pub(crate) use connections::Admitted;
pub use ops::serve_ops;
pub(crate) use ops::{OPS_CONNECTIONS_MAX, OPS_WRITE_WAIT};
pub(crate) use places::{Place, Places};
pub(crate) use routes::{ops_routes, routes};
pub(crate) use server::Server;
