//! Why a store of records did not do what a tier asked of it.

use std::io;
use transport::{FileError, FilePrepareError, ObjectError, ObjectPrepareError, PostError};

/// Why a store did not do its part.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// Only the host tier takes records that were lifted.
    #[error("records are lifted to the host tier alone")]
    NoLiftTarget,
    /// A transfer of files could not be prepared.
    #[error(transparent)]
    PrepareFile(#[from] FilePrepareError),
    /// A request to the object store could not be prepared.
    #[error(transparent)]
    PrepareObject(#[from] ObjectPrepareError),
    /// The mover did not take a transfer.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A read or write of files failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A request to the object store failed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A record was written but not noted, so it would not be found after a restart.
    #[error("the log cannot be written: {0}")]
    Log(#[source] io::Error),
    /// A listing ended without a list.
    #[error("the store has no list of what is there")]
    NoList,
}
