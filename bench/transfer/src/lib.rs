#![doc = include_str!("../README.md")]

pub mod page;

mod ends;
mod error;
mod files;
mod lanes;
mod latency;
mod objects;
mod own;
mod pool;
mod report;
mod settings;
mod stream;
mod sweep;
mod timed;
mod turns;

pub use ends::{Owner, own};
pub use error::BenchError;
pub use lanes::{LaneOfHost, NoLane, lanes};
pub use report::{Report, Row};
pub use settings::{Files, Over, OwnerAddress, OwnerAddressError, Settings, Store, Trust, Wire};
pub use sweep::{Progress, sweep};
