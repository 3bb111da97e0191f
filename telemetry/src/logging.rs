//! The log: `tracing` events to stderr, for people or for machines.

use crate::timeline;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

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
    /// The process keeps no log.
    #[error("this process keeps no log")]
    None,
}

/// What is said of others' code unless the filter names it: repetitions of requests to a store are told by its tier.
const QUIET: &str = "object_store=warn";
/// Levels, as `tracing` reads them.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks a filter. Errors: [`LogError::Filter`]: it cannot be read, or has a word that is no level. `tracing` alone
/// would take such a word for the name of a part of the program, and log nothing of all others.
pub fn check(filter: &str) -> Result<(), LogError> {
    parse(filter).map(drop)
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    let wrong = |reason: String| LogError::Filter { filter: filter.to_owned(), reason };
    let is_level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    for word in filter.split(',').map(str::trim) {
        if !is_level(word) && !word.contains(['=', '[']) {
            let levels = LEVELS.join(", ");
            return Err(wrong(format!("{word:?} is neither a level ({levels}) nor PART=LEVEL, such as router=debug")));
        }
    }
    EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|error| wrong(error.to_string()))
}

/// Sends the process's events to stderr. `filter` is a level (`info`) or directives in the form of `tracing`
/// (`info,router=debug`). `ansi` colours the text format. `timeline` is the file that the timeline goes to, if it
/// is wanted.
pub fn init(filter: &str, format: LogFormat, ansi: bool, timeline: Option<&Path>) -> Result<(), LogError> {
    let parsed = parse(filter)?;
    let timeline = timeline
        .map(|path| timeline::layer(path).map_err(|source| LogError::Timeline { path: path.to_owned(), source }))
        .transpose()?;
    let log = fmt::layer().with_writer(std::io::stderr);
    let log = match format {
        LogFormat::Text => log.with_ansi(ansi).boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    let (parsed, handle) = reload::Layer::new(parsed);
    let log = log.with_filter(parsed);
    tracing_subscriber::registry().with(log).with(timeline).try_init().map_err(|_| LogError::Taken)?;
    // It was not set before: the line above succeeds once.
    let _ = FILTER.set(Changeable { text: Mutex::new(filter.to_owned()), handle });
    Ok(())
}

/// The filter of the process's log.
struct Changeable {
    /// As it was given.
    text: Mutex<String>,
    handle: reload::Handle<EnvFilter, Registry>,
}

static FILTER: OnceLock<Changeable> = OnceLock::new();

/// Returns the filter, as it was given. Errors: the process keeps no log.
pub fn filter() -> Result<String, LogError> {
    let Changeable { text, .. } = FILTER.get().ok_or(LogError::None)?;
    Ok(text.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Replaces the filter, and returns the one before. Errors: it cannot be read, or the process keeps no log.
pub fn set_filter(filter: &str) -> Result<String, LogError> {
    let parsed = parse(filter)?;
    let Changeable { text, handle } = FILTER.get().ok_or(LogError::None)?;
    let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
    // An error says that the process has no log any more.
    handle.reload(parsed).map_err(|_| LogError::None)?;
    Ok(std::mem::replace(&mut text, filter.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for good in ["info", "WARN", "info,router=debug", "info,object_store=debug", "warn,worker[step]=trace"] {
            check(good).expect("it is good");
        }
        for bad in ["", "warning", "loud", "info,router=loud", "info,,warn"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        let error = check("warning").expect_err("no level").to_string();
        assert!(error.contains("\"warning\" is neither a level"), "{error}");
    }
}
