#![doc = include_str!("../README.md")]

pub mod page;

mod bench;
mod card_copies;
mod card_limits;
mod clock;
mod cost;
mod error;
mod limits;
mod model;
mod report;
mod settings;
mod steps;
mod stopwatch;
mod work;

pub use bench::{Bench, Progress};
pub use card_limits::{CardLimits, CardSizes};
pub use error::BenchError;
pub use limits::LimitFigures;
pub use report::{KernelFigures, Report, Spread, WorkFigures};
pub use settings::{CardChoice, Settings};
pub use work::{Cut, Work};

/// Most tokens of a prompt in a step.
pub const CHUNK_MAX: u32 = 1 << 15;
/// Most tokens that a decode sample makes for each sequence.
pub const DECODED_MAX: u32 = 1 << 12;
/// Most sequences at once.
pub const BATCH_MAX: u32 = 512;
/// Most different works of a run.
pub const WORKS_MAX: usize = 64;
/// Most samples of each work.
pub const SAMPLES_MAX: usize = 1000;
