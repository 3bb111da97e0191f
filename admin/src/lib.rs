#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod browsers;
mod cluster;
mod fan_out;
mod json;
mod names;
mod reach;
mod refusal;
mod routes;
mod service;
mod snapshots;

#[cfg(test)]
mod tests;

pub use browsers::Browsers;
pub use cluster::Cluster;
pub use reach::{Caller, Certified, Reach};
pub use routes::{Health, routes};
pub use tonic::Status;

/// Time for a worker to answer.
pub const ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
