//! A peer's memory, mapped for reading.

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// Why a peer's memory is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// It is no file that can be sealed.
    #[error("its memory is no memfd: {0}")]
    NoMemfd(Errno),
    /// Its owner may take bytes of it away.
    #[error("its memory could shrink under the reader")]
    CouldShrink,
    /// The system does not say how long it is.
    #[error("its memory has no size: {0}")]
    NoSize(Errno),
    /// It has fewer bytes than its owner says.
    #[error("its memory has {size} bytes, not {len} from {offset}")]
    TooShort {
        /// Bytes that it has.
        size: i64,
        /// Bytes that were asked for.
        len: usize,
        /// Where they should begin.
        offset: u64,
    },
    /// The system refuses to map it.
    #[error("its memory cannot be mapped: {0}")]
    Refused(Errno),
}

/// A read-only mapping of a sealed memfd. It stays valid memory whatever becomes of the peer: the kernel keeps the
/// file as long as it is mapped, and the seals keep its size.
pub struct PeerMapping {
    base: *const u8,
    len: usize,
}

// SAFETY: it is an address range; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for PeerMapping {}
// SAFETY: as above.
unsafe impl Sync for PeerMapping {}

impl PeerMapping {
    /// Maps `len` bytes from `offset`. Errors: [`MapError`].
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, MapError> {
        if !rustix::fs::fcntl_get_seals(file).map_err(MapError::NoMemfd)?.contains(SealFlags::SHRINK) {
            return Err(MapError::CouldShrink);
        }
        let size = rustix::fs::fstat(file).map_err(MapError::NoSize)?.st_size;
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > size as u64) {
            return Err(MapError::TooShort { size, len, offset });
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset) };
        let base = base.map_err(MapError::Refused)?;
        // SAFETY: the range is the mapping's. A hint; nothing depends on it but speed.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxHugepage) };
        Ok(Self { base: base.cast(), len })
    }

    /// Returns the first byte, which must not be written.
    pub fn as_ptr(&self) -> *const u8 {
        self.base
    }

    /// Returns bytes, at least one.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for PeerMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and its users held the value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}
