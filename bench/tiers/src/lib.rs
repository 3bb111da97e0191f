#![doc = include_str!("../README.md")]

pub mod page;

mod error;
mod limits;
mod measure;
mod report;
mod server;
mod subject;

pub use error::BenchError;
pub use measure::{Progress, measure};
pub use report::{PromptFigures, Report, Row, Spread, Wear};
pub use subject::{Settings, Subject};

/// Prompts of a length, which take turns.
const TURNS: usize = 3;
/// What the device holds, in prompts: more than one, and less than all but one of them.
const DEVICE_PROMPTS: f64 = 1.5;
/// Tokens by which decoding is measured.
const DECODED: u32 = 32;
/// Most rounds.
const ROUNDS_MAX: usize = 1000;
/// Most lengths of a run.
const LENGTHS_MAX: usize = 16;
