//! The load generator: drives any server that speaks OpenAI's API over HTTP and says how it did.
//!
//! [`Run::prepare`] reaches the server and finds out what it understands, [`Run::measure`] sends what [`Settings`]
//! ask for and notes every request in a [`Record`], [`Report`] says what the records mean, and [`page::html`]
//! draws it.
//!
//! What is deliberately absent: the command line and the terminal (`baton bench serve` has them); TLS and HTTP/2
//! (a measurement wants nothing between itself and the server); tokenizers: lengths are what the server says they
//! are. Everything runs on the thread that polls the run, so a stamp is never older than what that thread did
//! last, and the report says how busy it was.

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
