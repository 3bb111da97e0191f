//! Memory in a sealed memfd: its owner writes it, and the kernel keeps everybody else from doing so.

use crate::memory::Memory;
use crate::own::OwnMapping;
use domain::KvPart;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Zeroed memory in a memfd of its own. The file keeps its size, and after this mapping nobody gets one to write with.
#[derive(Debug)]
pub struct SealedMemory {
    mapping: OwnMapping,
    file: OwnedFd,
    part: Option<KvPart>,
}

/// What the owner of a memory seals: its file keeps its size, and who maps it from now on maps it for reading.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

impl SealedMemory {
    /// `len` zero bytes, at least one. `name` is what `/proc` shows. Errors: of the system.
    ///
    /// ```
    /// use transport::{Memory, SealedMemory};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let pool = SealedMemory::new("pool", 64 << 10)?;
    /// assert_eq!(pool.len(), 64 << 10);
    /// let (file, offset) = pool.file().expect("others may map it, to read");
    /// # let _ = (file, offset);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(name: &str, len: usize) -> io::Result<Self> {
        let len = len.max(1);
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let mapping = OwnMapping::new(len, Some(&file))?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok(Self { mapping, file, part: None })
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
        self.mapping.as_ptr()
    }

    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), 0))
    }

    fn part(&self) -> Option<KvPart> {
        self.part
    }
}
