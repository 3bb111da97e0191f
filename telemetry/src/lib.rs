#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod aliases;
mod declared;
pub mod failpoint;
#[rustfmt::skip]
#[path = "generated/otlp.rs"]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; OpenTelemetry documents its protocol")]
mod generated;
mod install;
pub mod lanes;
pub mod logging;
pub mod metrics;
mod series;
pub mod timeline;
pub mod traces;

pub use aliases::{ALIASES, Alias};
pub use install::{MetricsHandle, install};
pub use series::Series;

#[cfg(test)]
mod tests;
