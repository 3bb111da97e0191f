#![doc = include_str!("../README.md")]

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
