//! What stops a run.

use std::fmt;
use std::io;
use std::time::Duration;
use transport::{
    AgentStartError, FileError, FilePrepareError, ObjectError, ObjectPrepareError, PostError, PrepareError,
    TransferError,
};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Settings that contradict each other or a bound.
    #[error("{0}")]
    Settings(String),
    /// The system refused memory, a socket or a process.
    #[error(transparent)]
    System(#[from] io::Error),
    /// An agent does not start.
    #[error(transparent)]
    Agent(#[from] AgentStartError),
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
    /// A transfer of files was refused.
    #[error(transparent)]
    PrepareFile(#[from] FilePrepareError),
    /// A transfer of files failed.
    #[error("a read or write of files failed: {0}")]
    File(#[from] FileError),
    /// A transfer of objects was refused.
    #[error(transparent)]
    PrepareObject(#[from] ObjectPrepareError),
    /// A transfer of objects failed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Another process writes or deletes the same objects.
    #[error("an object of this run was written or deleted by somebody else: two runs on one bucket disturb each other")]
    Disturbed,
    /// A transfer did not end in time.
    #[error("a transfer over {0} did not end within {1} seconds")]
    Hangs(String, u64),
    /// Bytes arrived that were not the owner's.
    #[error("blocks of {bytes} bytes over {over} arrived wrong")]
    Wrong {
        /// Over what.
        over: String,
        /// Bytes of each.
        bytes: usize,
    },
}

impl BenchError {
    /// Returns the error of a transfer over this that did not end within `patience`.
    pub(crate) fn hangs(over: impl fmt::Display, patience: Duration) -> Self {
        Self::Hangs(over.to_string(), patience.as_secs())
    }
}
