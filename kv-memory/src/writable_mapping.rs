//! Memory that is mapped to be written: of this process alone, or of a file that others map too.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// A mapping of one's own.
#[derive(Debug)]
pub(crate) struct WritableMapping {
    base: *mut u8,
    len: usize,
    /// Address and bytes of all that is mapped.
    mapped: (*mut u8, usize),
}

// SAFETY: it is an address range; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for WritableMapping {}
// SAFETY: as above.
unsafe impl Sync for WritableMapping {}

impl WritableMapping {
    /// Maps the first `len` bytes of the file, which has as many; `None`: zeroed ones of this process alone. At least
    /// one. Errors: of the system.
    pub(crate) fn new(len: usize, file: Option<impl AsFd>) -> io::Result<Self> {
        let (protection, anywhere) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
        // All of it lies in huge pages: pages are given where memory is touched, so room to begin and to end with
        // a whole one costs addresses.
        let is_huge = file.is_none() && len >= HUGE_PAGE;
        let room = if is_huge {
            len.checked_next_multiple_of(HUGE_PAGE).and_then(|len| len.checked_add(HUGE_PAGE))
        } else {
            Some(len)
        };
        let room = room.ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            match file {
                Some(file) => rustix::mm::mmap(anywhere, room, protection, MapFlags::SHARED, file, 0)?,
                None => rustix::mm::mmap_anonymous(anywhere, room, protection, MapFlags::PRIVATE)?,
            }
        };
        let start: *mut u8 = start.cast();
        let before = if is_huge { start.align_offset(HUGE_PAGE) } else { 0 };
        // A value from here on, so that an error unmaps it.
        let mapping = Self { base: start.wrapping_add(before), len, mapped: (start, room) };
        // SAFETY: the range is the mapping's.
        unsafe {
            // A child that lived on would keep a mapping to write with, or share private pages that a device was
            // told of.
            rustix::mm::madvise(start.cast(), room, Advice::LinuxDontFork)?;
            // A hint; nothing depends on it but speed.
            let _ = rustix::mm::madvise(start.cast(), room, Advice::LinuxHugepage);
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

impl Drop for WritableMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and who used it held the value.
        let unmapped = unsafe { rustix::mm::munmap(self.mapped.0.cast(), self.mapped.1) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}
