//! Why a device cannot be made.

use std::io;

/// Why a device cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The configuration contradicts itself or the model.
    #[error("the cpu device cannot be made so: {0}")]
    Config(String),
    /// No memory.
    #[error("cannot allocate {bytes} bytes for {what}")]
    Memory {
        /// What the memory is for, in plural or as a mass noun.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No threads.
    #[error("cannot start the device's threads")]
    Threads(#[source] io::Error),
}
