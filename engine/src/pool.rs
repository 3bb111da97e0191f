//! Memory of a KV pool: a sealed memfd, so that other processes of the host can be given it to read and nobody but this
//! one can write it, whatever goes wrong elsewhere.

use crate::device::PoolMemory;
use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The file keeps its size, and who maps it from now on maps it for reading.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A pool's memory. Its pages are zero, and not there until they are touched.
#[derive(Debug)]
pub(crate) struct Pool {
    map: MmapRaw,
    file: OwnedFd,
}

impl Pool {
    /// `bytes` zero bytes, at least one, in huge pages where the system has them to give.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1);
        let file = rustix::fs::memfd_create("baton-kv", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        // A child that lived on would keep a mapping to write with.
        map.advise(Advice::DontFork)?;
        // A hint that an old kernel may refuse; nothing depends on it but speed.
        let _ = map.advise(Advice::HugePage);
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok(Self { map, file })
    }
}

// SAFETY: the mapping is this value's own and stays as it is until it is dropped; the seals keep the size of its file.
unsafe impl PoolMemory for Pool {
    fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap};

    #[test]
    fn nobody_else_can_write_it() {
        let pool = Pool::new(5000).expect("memory");
        let (file, offset) = pool.file().expect("it has a file");
        assert_eq!((offset, pool.len()), (0, 5000));
        for (protection, allowed) in [(ProtFlags::READ, true), (ProtFlags::READ | ProtFlags::WRITE, false)] {
            // SAFETY: a new mapping overlaps nothing, and the allowed one is not written.
            let mapped = unsafe { mmap(std::ptr::null_mut(), 5000, protection, MapFlags::SHARED, file, 0) };
            assert_eq!(mapped.is_ok(), allowed, "{protection:?}");
        }
        assert!(rustix::io::pwrite(file, &[1], 0).is_err());
        assert!(rustix::fs::ftruncate(file, 1).is_err());
        assert!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_err());
    }
}
