//! Measures the CPU engine: how fast it computes prompts and decodes, and what share of the machine's limits that is.
//!
//! [`Bench::open`] loads a model, [`Bench::measure`] runs the work of [`Settings`] step by step as a worker would
//! and takes the limits of the machine before and after, [`Report`] says what came of it, and [`page::html`] draws
//! it.
//!
//! What is deliberately absent: the command line and the terminal (`baton bench engine` has them); scheduling,
//! HTTP and handoffs, which `bench-serve` measures from outside; a verdict, since figures depend on the machine
//! and on what else it does.

pub mod page;

mod bench;
mod cost;
mod error;
mod report;
mod settings;
mod steps;
mod stopwatch;
mod work;

pub use bench::{Bench, Progress};
pub use error::BenchError;
pub use report::{KernelFigures, LimitFigures, Report, Spread, WorkFigures};
pub use settings::Settings;
pub use work::Work;

/// Most input rows of a step: prompts are computed in chunks of so many tokens.
pub const CHUNK: u32 = 512;
/// Tokens that a decode sample makes for each sequence.
pub const DECODED: u32 = 32;
/// Most sequences at once.
pub const BATCH_MAX: u32 = CHUNK;
/// Most different works of a run.
pub const WORKS_MAX: usize = 64;
/// Most samples of each work.
pub const SAMPLES_MAX: usize = 1000;
