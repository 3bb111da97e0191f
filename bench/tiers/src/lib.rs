//! The measure of the tiers: how long prompts of a length wait for their first token when they are computed, and
//! when they come from the device, host memory, disk or a store, beside what moving their bytes takes at best in
//! the same run.
//!
//! A server is a process of its own and is asked over HTTP. Its device holds less than two prompts and three take
//! turns, so that nothing of one is left when its turn comes; what the server counts says where each came from,
//! and one that did not come from where it should does not count. [`measure()`] does it all, [`Report`] says what
//! came of it, and [`page::html`] draws it.
//!
//! What is deliberately absent: the command line and the terminal (`baton bench tiers` has them); workloads, which
//! `bench-serve` has; a verdict, since figures depend on the machine and on what else it does.

pub mod page;

mod bounds;
mod error;
mod limits;
mod measure;
mod report;
mod server;
mod subject;

pub use error::{BenchError, RawError};
pub use measure::{Progress, measure};
pub use report::{PromptFigures, Report, Row, Spread, Wear};
pub use subject::{Settings, Subject};
