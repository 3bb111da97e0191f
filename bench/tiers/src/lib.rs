#![doc = include_str!("../README.md")]

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
