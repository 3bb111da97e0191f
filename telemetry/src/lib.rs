//! What operators see: every metric (declared in [`metrics`], nowhere else), its Prometheus form, the log and the timeline.
//!
//! What is deliberately absent: any HTTP endpoint (the router serves [`MetricsHandle::render`]), and any decision that
//! reads a metric back.
#![forbid(unsafe_code)]

pub mod failpoint;
mod install;
pub mod logging;
pub mod metrics;
pub mod timeline;

pub use install::{MetricsHandle, install};

#[cfg(test)]
mod tests;
