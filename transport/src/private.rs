//! Memory that nobody else maps. The kernel gives it huge pages where it may, without being asked to for memory that is shared.

use crate::memory::Memory;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;

/// Zeroed memory of this process alone: what devices read and write in a few large pieces.
#[derive(Debug)]
pub struct PrivateMemory {
    base: *mut u8,
    len: usize,
}

// SAFETY: it is an address range; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for PrivateMemory {}
// SAFETY: as above.
unsafe impl Sync for PrivateMemory {}

impl PrivateMemory {
    /// `len` zero bytes, at least one. Errors: of the system.
    pub fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        // A value from here on, so that an error unmaps it.
        let memory = Self { base: base.cast(), len };
        // SAFETY: the range is the mapping's.
        unsafe {
            // With a child its pages would be copied when they are written, away from those that a device was told of.
            rustix::mm::madvise(base, len, Advice::LinuxDontFork)?;
            // A hint; nothing depends on it but speed.
            let _ = rustix::mm::madvise(base, len, Advice::LinuxHugepage);
        }
        Ok(memory)
    }
}

// SAFETY: the mapping is this value's own, stays as it is until it is dropped, and is readable and writable. No reference to its bytes
// is ever made here.
unsafe impl Memory for PrivateMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and who used it held the value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}
