//! What stops a run.

use std::io;
use std::path::PathBuf;
use transport::{FileError, FilePrepareError, PostError};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Settings that contradict each other or a bound.
    #[error("{0}")]
    Settings(String),
    /// The system refused memory or a process.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Files cannot be read by the mover.
    #[error("the raw read in {} fails; name another --folder: {why}", folder.display())]
    Raw {
        /// Folder of the file that was to be read.
        folder: PathBuf,
        /// What failed.
        #[source]
        why: RawError,
    },
    /// The server did not start.
    #[error("the server did not start: {0}")]
    Start(String),
    /// The server does not answer.
    #[error("the server does not answer {path}: {why}")]
    Silent {
        /// What it was asked.
        path: &'static str,
        /// What went wrong with the request.
        why: String,
    },
    /// A tier did not take what it should.
    #[error("the tier {tier} holds {held} of {expected} records {seconds} s after the last was computed; give it room")]
    NotWritten {
        /// Name of the tier.
        tier: &'static str,
        /// What it holds.
        held: u64,
        /// What it should.
        expected: u64,
        /// How long it was given.
        seconds: u64,
    },
    /// No prompt came from where it should.
    #[error(
        "no prompt of {tokens} tokens came from {place}, but of the last {came}; is loading slower than computing here?"
    )]
    Elsewhere {
        /// Their length.
        tokens: u32,
        /// From where they should have come.
        place: &'static str,
        /// What came from where, in words.
        came: String,
    },
    /// A prompt has another answer when it is not computed.
    #[error("a prompt of {tokens} tokens has another answer from {place} than when it was computed")]
    Differs {
        /// Its length.
        tokens: u32,
        /// From where it came.
        place: &'static str,
    },
}

/// Why raw reads cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// The system refused memory, a thread or the file.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The mover cannot do such a transfer.
    #[error(transparent)]
    Prepare(#[from] FilePrepareError),
    /// The mover did not take the transfer.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A read or write failed.
    #[error(transparent)]
    Transfer(#[from] FileError),
    /// The mover did not end the transfer in time.
    #[error("it takes longer than {seconds} s")]
    Late {
        /// The time that it was given.
        seconds: u64,
    },
}
