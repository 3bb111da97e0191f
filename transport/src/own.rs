//! Memory that is mapped to be written: of this process alone, or of a file that others map too.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;

/// A mapping of one's own.
#[derive(Debug)]
pub(crate) struct OwnMapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: it is an address range; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for OwnMapping {}
// SAFETY: as above.
unsafe impl Sync for OwnMapping {}

impl OwnMapping {
    /// The first `len` bytes of the file, which has as many; `None`: zeroed ones that nobody else maps. At least one. Errors: of the
    /// system.
    pub(crate) fn new(len: usize, file: Option<impl AsFd>) -> io::Result<Self> {
        let (protection, anywhere) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            match file {
                Some(file) => rustix::mm::mmap(anywhere, len, protection, MapFlags::SHARED, file, 0)?,
                None => rustix::mm::mmap_anonymous(anywhere, len, protection, MapFlags::PRIVATE)?,
            }
        };
        // A value from here on, so that an error unmaps it.
        let mapping = Self { base: base.cast(), len };
        // SAFETY: the range is the mapping's.
        unsafe {
            // A child that lived on would keep a mapping to write with, or share private pages that a device was told of.
            rustix::mm::madvise(base, len, Advice::LinuxDontFork)?;
            // A hint; nothing depends on it but speed.
            let _ = rustix::mm::madvise(base, len, Advice::LinuxHugepage);
        }
        Ok(mapping)
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and who used it held the value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}
