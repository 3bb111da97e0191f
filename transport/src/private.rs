//! Memory that nobody else maps. The kernel gives it huge pages where it may, without being asked to for memory that is shared.

use crate::memory::Memory;
use crate::own::OwnMapping;
use std::io;

/// Zeroed memory of this process alone: what devices read and write in a few large pieces.
#[derive(Debug)]
pub struct PrivateMemory(OwnMapping);

impl PrivateMemory {
    /// `len` zero bytes, at least one. Errors: of the system.
    pub fn new(len: usize) -> io::Result<Self> {
        OwnMapping::new(len.max(1), None::<std::os::fd::BorrowedFd<'_>>).map(Self)
    }
}

// SAFETY: the mapping is this value's own, stays as it is until it is dropped, and is readable and writable. No reference to its bytes
// is ever made here.
unsafe impl Memory for PrivateMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
