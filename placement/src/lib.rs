#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod cost;
mod departures;
mod drain;
mod index;
mod journey;
mod liveness;
mod message;
mod overload;
mod placement;
mod retry;
mod seats;
#[cfg(test)]
mod tests;
mod waiting;
mod workers;

pub use config::{FetchPolicy, HandoffPolicy, PlacementConfig, Rates};
pub use cost::{CANDIDATES_KEPT, Cost, Decision, Route};
pub use departures::LEFT_AFTER;
pub use journey::EARLY_ROWS_MAX;
pub use message::{Closing, Command, Event, Rejected, Usage};
pub use overload::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
pub use placement::{Counters, Phases, Placement};
pub use workers::WorkerView;
