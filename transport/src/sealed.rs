//! Memory in a sealed memfd: its owner writes it, and the kernel keeps everybody else from doing so.

use crate::memory::Memory;
use domain::KvPart;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Zeroed memory in a memfd of its own. The file keeps its size, and after this mapping nobody gets one to write with.
#[derive(Debug)]
pub struct SealedMemory {
    base: *mut u8,
    len: usize,
    file: OwnedFd,
    part: Option<KvPart>,
}

// SAFETY: it is an address range; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for SealedMemory {}
// SAFETY: as above.
unsafe impl Sync for SealedMemory {}

/// What the owner of a memory seals: its file keeps its size, and who maps it from now on maps it for reading.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

impl SealedMemory {
    /// `len` zero bytes, at least one. `name` is what `/proc` shows. Errors: of the system.
    pub fn new(name: &str, len: usize) -> io::Result<Self> {
        let len = len.max(1);
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0)? };
        // A value from here on, so that an error unmaps it.
        let memory = Self { base: base.cast(), len, file, part: None };
        // SAFETY: the range is the mapping's.
        unsafe {
            // A child that lived on would keep a mapping to write with.
            rustix::mm::madvise(base, len, Advice::LinuxDontFork)?;
            // A hint; nothing depends on it but speed.
            let _ = rustix::mm::madvise(base, len, Advice::LinuxHugepage);
        }
        rustix::fs::fcntl_add_seals(&memory.file, SEALS)?;
        Ok(memory)
    }

    /// The same, of KV that is made of such parts.
    pub fn of_parts(mut self, part: KvPart) -> Self {
        self.part = Some(part);
        self
    }
}

// SAFETY: the mapping is this value's own, stays as it is until it is dropped, and is readable and writable; the seals keep the size
// of its file. No reference to its bytes is ever made here.
unsafe impl Memory for SealedMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), 0))
    }

    fn part(&self) -> Option<KvPart> {
        self.part
    }
}

impl Drop for SealedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and who used it held the value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}
