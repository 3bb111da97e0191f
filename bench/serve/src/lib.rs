#![doc = include_str!("../README.md")]

pub mod page;

mod alarm;
mod answer;
mod client;
mod clock;
mod dialect;
mod error;
mod live;
mod prompt;
mod random;
mod record;
mod report;
mod request;
mod run;
mod settings;
mod slo;
mod spread;
mod sse;
mod summary;
mod trace;
mod workload;

pub use error::{BenchError, Malformed};
pub use live::Live;
pub use record::{Failure, Record};
pub use report::{Figures, Generator, Goodput, Report, Throughput};
pub use run::Run;
pub use settings::{Api, Arrivals, Settings, Shape, TokenIds};
pub use slo::Slo;
pub use spread::Spread;
pub use summary::Summary;
pub use trace::{Trace, TraceEntry};

/// Most requests of a run.
pub const REQUESTS_MAX: u64 = 10_000_000;
/// Most gaps between tokens that a run notes, four bytes each; a run that reaches it sends nothing more.
pub const GAPS_MAX: usize = 100_000_000;
/// Most requests in flight, and so connections.
pub const IN_FLIGHT_MAX: u32 = 20_000;
/// Most tokens of a prompt or an answer.
pub const TOKENS_MAX: u32 = 10_000_000;
