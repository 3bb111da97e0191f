//! What a pull tells while it goes on.

use std::time::Duration;

/// What a pull tells while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// The model was found on the hub.
    Found {
        /// Its files.
        files: usize,
        /// Their bytes.
        bytes: u64,
        /// Bytes that are not here yet.
        missing: u64,
    },
    /// So many bytes of the model are here.
    Bytes(u64),
    /// Something failed and is tried again after a wait.
    Waiting {
        /// What failed.
        reason: &'a str,
        /// The wait.
        wait: Duration,
    },
    /// Another process fetches this file; the pull goes on when that has ended.
    Locked {
        /// Path of the file.
        file: &'a str,
    },
}
