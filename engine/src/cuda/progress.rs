//! The progress word in pinned memory, where kernels store it.

use cuda::{Context, DriverError, Pinned};
use domain::ProgressMemory;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A word of pinned memory, which begins at zero.
pub(super) struct PinnedWord(Pinned);

impl PinnedWord {
    /// Allocates it. Errors: of the driver.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        Pinned::new(context, size_of::<AtomicU64>()).map(Self)
    }

    /// Returns the card's address of it.
    pub(super) fn device_address(&self) -> u64 {
        self.0.device_address()
    }
}

impl ProgressMemory for PinnedWord {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the memory is aligned to a page and lives as long as the value; the card stores whole words.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().cast()) }
    }
}
