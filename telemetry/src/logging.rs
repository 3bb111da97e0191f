//! The log: `tracing` events to stderr, for people or for machines.

use crate::timeline;
use std::path::{Path, PathBuf};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("the log filter {filter:?} cannot be read: {reason}")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The timeline has no file.
    #[error("the timeline {path} cannot be made")]
    Timeline {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Something else takes this process's events already.
    #[error("this process has a log already")]
    Taken,
}

/// Sends the process's events to stderr. `filter` is a level (`info`) or directives in the form of `tracing`
/// (`info,router=debug`). `ansi` colours the text format. `timeline` is the file that the timeline goes to, if it is wanted.
pub fn init(filter: &str, format: LogFormat, ansi: bool, timeline: Option<&Path>) -> Result<(), LogError> {
    let parsed = EnvFilter::try_new(filter)
        .map_err(|error| LogError::Filter { filter: filter.to_owned(), reason: error.to_string() })?;
    let timeline = timeline
        .map(|path| timeline::layer(path).map_err(|source| LogError::Timeline { path: path.to_owned(), source }))
        .transpose()?;
    let log = fmt::layer().with_writer(std::io::stderr);
    let log = match format {
        LogFormat::Text => log.with_ansi(ansi).boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    let log = log.with_filter(parsed);
    tracing_subscriber::registry().with(log).with(timeline).try_init().map_err(|_| LogError::Taken)
}
