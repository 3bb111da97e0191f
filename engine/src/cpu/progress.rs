//! How the device tells readers which layers are written: by a call, or, where its pools are as a GPU's, as a GPU does.

use crate::device_progress::DeviceProgress;
use domain::{ProgressWord, StepId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The progress word of the device, and how it is raised.
#[derive(Clone)]
pub(super) enum Progress {
    /// By a call, which rings for readers.
    Called(ProgressWord),
    /// By a store into memory at which a poller looks.
    Stored {
        /// Where the device stores.
        memory: Arc<AtomicU64>,
        /// Shows it to readers.
        poller: Arc<DeviceProgress>,
    },
}

impl Progress {
    /// Makes a word at zero. `is_stored`: the device stores it. Errors: the system starts no thread.
    pub(super) fn new(is_stored: bool) -> io::Result<Self> {
        if !is_stored {
            return Ok(Self::Called(ProgressWord::new()));
        }
        let memory = Arc::new(AtomicU64::new(0));
        let poller = Arc::new(DeviceProgress::start(memory.clone())?);
        Ok(Self::Stored { memory, poller })
    }

    /// Returns the word that readers see.
    pub(super) fn word(&self) -> &ProgressWord {
        match self {
            Self::Called(word) => word,
            Self::Stored { poller, .. } => poller.word(),
        }
    }

    /// Says that layers `0..=layer` of `step` are written.
    pub(super) fn written(&self, step: StepId, layer: u16) {
        match self {
            Self::Called(word) => word.raise(step, layer),
            Self::Stored { memory, .. } => memory.store(ProgressWord::mark(step, layer), Ordering::Release),
        }
    }

    /// Runs a step, at whose end readers see all that it wrote.
    pub(super) fn during<T>(&self, step: impl FnOnce() -> T) -> T {
        let running = match self {
            Self::Called(_) => None,
            Self::Stored { poller, .. } => Some(poller.step()),
        };
        let done = step();
        drop(running);
        done
    }
}
