//! Why a model cannot be opened.

use super::config::{ConfigError, TIED};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::gguf::GgufError;
use std::io;
use std::path::PathBuf;

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file of it cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file of it describes something that cannot be run.
    #[error("{path}: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// Its GGUF file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its output projection cannot be read, and nothing says that the embedding stands for it.
    #[error(
        "{source}. It is the output projection: fetch it in a format that is read, or, if the model has none of its own, \
         set {TIED} to true in config.json"
    )]
    Head {
        /// What is wrong with it.
        source: CheckpointError,
    },
    /// Its weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}
