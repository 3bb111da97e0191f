#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod arrivals;
mod attempts;
mod config;
mod cost;
mod counters;
mod departures;
mod drain;
mod ends;
mod index;
mod introductions;
mod journey;
mod liveness;
mod meetings;
mod message;
mod overload;
mod placement;
mod request_view;
mod requests_by_worker;
mod retry;
mod rows;
#[cfg(test)]
mod tests;
mod waiting;
mod worker_messages;
mod worker_sessions;
mod workers;

pub use config::{FetchPolicy, HandoffPolicy, PlacementConfig, PlacementLimits, Rates};
pub use cost::{CANDIDATES_KEPT, Cost, Decision, Route};
pub use counters::{Counters, Phases};
pub use departures::LEFT_AFTER;
pub use journey::EARLY_ROWS_MAX;
pub use message::{Closing, Command, Event, Rejected, Usage};
pub use overload::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
pub use placement::Placement;
pub use request_view::{RequestState, RequestView};
pub use workers::WorkerView;
