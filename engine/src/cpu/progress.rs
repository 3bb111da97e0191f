//! How the device tells readers which layers are written: by a call, or, where its pools are as a GPU's, as a GPU does.

use crate::device_progress::DeviceProgress;
use domain::{ProgressWord, StepId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The progress word of the device, and how it is raised.
#[derive(Clone)]
pub(super) enum Progress {
    /// By a call, which rings for readers.
    Called(ProgressWord),
    /// By a store into memory at which a poller looks.
    Stored(Arc<DeviceProgress>),
}

impl Progress {
    /// Makes a word at zero. `is_stored`: the device stores it. Errors: the system starts no thread.
    pub(super) fn new(is_stored: bool) -> io::Result<Self> {
        if !is_stored {
            return Ok(Self::Called(ProgressWord::new()));
        }
        Ok(Self::Stored(Arc::new(DeviceProgress::over(Arc::new(AtomicU64::new(0)))?)))
    }

    /// Returns the word that readers see.
    pub(super) fn word(&self) -> &ProgressWord {
        match self {
            Self::Called(word) => word,
            Self::Stored(stored) => stored.word(),
        }
    }

    /// Says that layers `0..=layer` of `step` are written.
    pub(super) fn written(&self, step: StepId, layer: u16) {
        match self {
            Self::Called(word) => word.raise(step, layer),
            Self::Stored(stored) => stored.written(step, layer),
        }
    }

    /// Runs a step, at whose end readers see all that it wrote.
    pub(super) fn during<T>(&self, step: impl FnOnce() -> T) -> T {
        let running = match self {
            Self::Called(_) => None,
            Self::Stored(stored) => Some(stored.step()),
        };
        let done = step();
        drop(running);
        done
    }
}
