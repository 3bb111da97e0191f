//! What operators see: every metric (declared in [`metrics`], nowhere else), its Prometheus form, the log and the timeline.
//!
//! What is deliberately absent: any HTTP endpoint (the router serves [`MetricsHandle::render`]), and any decision that
//! reads a metric back.
#![forbid(unsafe_code)]

pub mod failpoint;
mod install;
pub mod lanes;
pub mod logging;
pub mod metrics;
mod series;
pub mod timeline;

pub use install::{MetricsHandle, install};
pub use series::Series;

#[cfg(test)]
mod tests;
