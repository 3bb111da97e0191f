//! Why a GGUF file cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a GGUF file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("{path} is not a GGUF file of version 2 or 3: {found}")]
    Other {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        found: String,
    },
    /// It is cut off or damaged.
    #[error("{path} is cut off or damaged, fetch it again: {what}: {reason}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// The part of it.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// A part of a model that is split is not beside the first one.
    #[error("{path} is missing: the model is split into {parts} files, and all of them must lie in one folder")]
    MissingPart {
        /// The part.
        path: PathBuf,
        /// How many there are.
        parts: u64,
    },
    /// A metadata value is missing.
    #[error("{path} has no {key}: convert the model again with a newer converter")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A metadata value is not what it must be.
    #[error("{path}: {key} is {found}, but must be {expected}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What stands there.
        found: String,
        /// What would be understood.
        expected: String,
    },
}
