//! What stops a run.

use std::io;
use transport::{PostError, PrepareError, TransferError};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum HaulError {
    /// Settings that contradict each other or a bound.
    #[error("{0}")]
    Settings(String),
    /// The system refused memory, a socket or a process.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The owner is not what it should be.
    #[error("the owner {0}")]
    Owner(String),
    /// A transfer was refused.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A transfer was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A transfer failed.
    #[error("a read failed: {0}")]
    Transfer(#[from] TransferError),
    /// A transfer did not end in time.
    #[error("a read over {0} did not end within {1} seconds")]
    Hangs(String, u64),
    /// Bytes arrived that were not the owner's.
    #[error("reads of {bytes} bytes over {over} arrived wrong")]
    Wrong {
        /// Over what.
        over: String,
        /// Bytes of each.
        bytes: usize,
    },
}
