//! The router's brain: which workers serve a request, what of their answers the client gets, and what happens when
//! a worker fails. Events go in with the time, commands come out; the router's shell does what they say.
//!
//! ```text
//!   Event ──> Placement::handle(now, event, out) ──> Command
//!                │
//!                ├─ workers  who is up, how loaded, which prefixes each has cached (index)
//!                ├─ waiting  requests that no worker would soon get to
//!                ├─ cost     seconds that each candidate would take, and the choice
//!                └─ journey  one request: its attempt, its committed tokens, its deadline
//! ```
//!
//! The tokens committed here, that is sent to the client, are the truth. An attempt that fails is replayed from them
//! under a new epoch, and whatever the old attempt still says is dropped and counted.
//!
//! Deliberately absent: tokenizers and texts (the shell watches for stop strings and says so), sockets, clocks,
//! randomness. Memory is bounded: open requests, early rows, attempts and index entries each have a named limit.
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
