//! Bytes of the host that stay where they are.

use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of host memory that are mapped for as long as this lives, or a clone of it.
#[derive(Clone)]
pub struct HostRange {
    first: NonNull<u8>,
    len: usize,
    _held: Arc<dyn Send + Sync>,
}

// SAFETY: it gives out an address and no reference, and what keeps the bytes mapped may be in any thread.
unsafe impl Send for HostRange {}
// SAFETY: as above.
unsafe impl Sync for HostRange {}

impl HostRange {
    /// Makes a range of so many bytes.
    ///
    /// # Safety
    /// They are mapped for as long as `held` lives.
    pub(crate) unsafe fn new(first: NonNull<u8>, len: usize, held: Arc<dyn Send + Sync>) -> Self {
        Self { first, len, _held: held }
    }

    /// Returns the first byte.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Returns bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
