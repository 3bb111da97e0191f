//! The log: `tracing` events to stderr, for people or for machines.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

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
    /// Something else takes this process's events already.
    #[error("this process has a log already")]
    Taken,
}

/// Sends the process's events to stderr. `filter` is a level (`info`) or directives in the form of `tracing`
/// (`info,router=debug`). `ansi` colours the text format.
pub fn init(filter: &str, format: LogFormat, ansi: bool) -> Result<(), LogError> {
    let parsed = EnvFilter::try_new(filter)
        .map_err(|error| LogError::Filter { filter: filter.to_owned(), reason: error.to_string() })?;
    let builder = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(ansi).finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    }
    .map_err(|_| LogError::Taken)
}
