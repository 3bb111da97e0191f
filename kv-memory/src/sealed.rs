//! Memory in a sealed memfd: its owner writes it, and the kernel keeps all others from doing so.

use crate::writable_mapping::WritableMapping;
use crate::{Memory, Place};
use domain::KvPart;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Zeroed memory in a memfd of its own. The file keeps its size, and no later mapping of it can be written.
#[derive(Debug)]
pub struct SealedMemory {
    mapping: WritableMapping,
    file: OwnedFd,
    part: Option<KvPart>,
}

/// What the owner of a memory seals: its file keeps its size, and who maps it from now on maps it for reading.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

impl SealedMemory {
    /// Makes `len` zero bytes, at least one. `name` is what `/proc` shows. Errors: of the system.
    ///
    /// ```
    /// use kv_memory::{Memory, SealedMemory};
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
        let (mapping, file) = sealed(name, len.max(1))?;
        Ok(Self { mapping, file, part: None })
    }

    /// Returns the same, of KV that is made of such parts.
    pub fn of_parts(mut self, part: KvPart) -> Self {
        self.part = Some(part);
        self
    }

    /// Returns the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }
}

/// Makes a sealed memfd of so many bytes, at least one, and the one mapping that can write it. Errors: of the system.
pub(crate) fn sealed(name: &str, len: usize) -> io::Result<(WritableMapping, OwnedFd)> {
    let file = memfd(|flags| rustix::fs::memfd_create(name, flags))?;
    rustix::fs::ftruncate(&file, len as u64)?;
    let mapping = WritableMapping::new(len, Some(&file))?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok((mapping, file))
}

/// Makes a memfd that can be sealed, and from which nothing is executed: some systems allow no other
/// (`vm.memfd_noexec = 2`).
fn memfd(create: impl Fn(MemfdFlags) -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match create(flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 it is not known.
        Err(Errno::INVAL) => create(flags),
        file => file,
    }
}

// SAFETY: the mapping is this value's own, stays as it is until it is dropped, and is readable and writable; the
// seals keep the size of its file. No reference to its bytes is ever made here.
unsafe impl Memory for SealedMemory {
    fn place(&self) -> Place<'_> {
        Place::Host(self.as_ptr())
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use std::cell::RefCell;

    #[test]
    fn nobody_else_can_write_it() {
        let memory = SealedMemory::new("test", 5000).expect("memory");
        let (file, offset) = memory.file().expect("it has a file");
        assert_eq!((offset, memory.len()), (0, 5000));
        for (protection, allowed) in [(ProtFlags::READ, true), (ProtFlags::READ | ProtFlags::WRITE, false)] {
            // SAFETY: a new mapping overlaps nothing, and the allowed one is not written.
            let mapped = unsafe { mmap(std::ptr::null_mut(), 5000, protection, MapFlags::SHARED, file, 0) };
            assert_eq!(mapped.is_ok(), allowed, "{protection:?}");
        }
        assert!(rustix::io::pwrite(file, &[1], 0).is_err());
        assert!(rustix::fs::ftruncate(file, 1).is_err());
        assert!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_err());
    }

    #[test]
    fn nothing_is_executed_from_a_memfd_where_the_kernel_knows_how_to_keep_it_from_that() {
        for (knows, asked) in [(true, 1), (false, 2)] {
            let flags = RefCell::new(Vec::new());
            let made = memfd(|wanted| {
                flags.borrow_mut().push(wanted);
                if !knows && wanted.contains(MemfdFlags::NOEXEC_SEAL) {
                    return Err(Errno::INVAL);
                }
                rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC)
            });
            assert!(made.is_ok());
            let flags = flags.into_inner();
            assert!(flags.len() == asked && flags[0].contains(MemfdFlags::NOEXEC_SEAL), "{flags:?}");
        }
        let refused = memfd(|_| Err(Errno::MFILE));
        assert_eq!(refused.err(), Some(Errno::MFILE), "other errors are told");
    }
}
