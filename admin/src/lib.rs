#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod browsers;
mod cluster;
mod dump;
mod fan_out;
mod json;
mod names;
mod prefixes;
mod reach;
mod refusal;
mod routes;
mod service;
mod settings;
mod snapshots;

#[cfg(test)]
mod tests;

pub use browsers::Browsers;
pub use cluster::Cluster;
pub use reach::{Caller, Certified, Reach};
pub use routes::{Health, routes};
pub use settings::Settings;
pub use tonic::Status;

/// Bytes of a call: enough for a request whose prompt fills a context of a million tokens.
pub const CALL_BYTES_MAX: usize = 8 << 20;
/// Time for a worker to answer.
pub const ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
