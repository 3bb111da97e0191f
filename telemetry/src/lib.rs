#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod aliases;
mod declared;
pub mod failpoint;
mod install;
pub mod lanes;
pub mod logging;
pub mod metrics;
mod series;
pub mod timeline;

pub use aliases::{ALIASES, Alias};
pub use install::{MetricsHandle, install};
pub use series::Series;

#[cfg(test)]
mod tests;
