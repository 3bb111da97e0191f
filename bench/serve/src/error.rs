//! What stops a run before it begins. What happens to single requests is [`crate::Failure`].

use std::path::PathBuf;

/// A setting that cannot be read, in words that say what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub(crate) String);

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Settings that contradict each other or a bound.
    #[error(transparent)]
    Settings(#[from] Malformed),
    /// No server answers.
    #[error("cannot reach {url}: {why}; is the server running there? --url says where it is")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What happened instead of an answer.
        why: String,
    },
    /// The server has no list of models, or an empty one.
    #[error("{url} names no model ({why}); give one with --model")]
    NoModel {
        /// What was asked.
        url: String,
        /// What it answered.
        why: String,
    },
    /// The server refused a first, plain request.
    #[error("{url} refuses a plain request for {model:?}: {why}")]
    Refused {
        /// What was asked.
        url: String,
        /// The model of the request.
        model: String,
        /// What it answered.
        why: String,
    },
    /// A trace cannot be read.
    #[error("cannot read the trace {}", path.display())]
    TraceFile {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A line of a trace is no request.
    #[error("{}, line {line}: {why}", path.display())]
    TraceLine {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}
