//! Memory of a KV pool: a sealed memfd, so that other processes of the host can be given it to read and nobody but this
//! one can write it, whatever goes wrong elsewhere; or, to prove that nobody touches it, guarded memory.

use crate::device::PoolMemory;
use domain::KvPart;
use kv_memory::{GuardedMemory, Memory, Place, SealedMemory};
use std::io;
use std::os::fd::BorrowedFd;

/// A pool's memory. Its pages are zero, and not there until they are touched.
pub(crate) enum Pool {
    /// Everybody in this process may touch it, and others may map it.
    Sealed(SealedMemory),
    /// The engine and the pool's copier alone.
    Guarded(GuardedMemory),
}

impl Pool {
    /// `bytes` zero bytes, at least one, made of such parts, in huge pages where the system has them to give.
    pub(crate) fn new(bytes: usize, part: KvPart, guarded: bool) -> io::Result<Self> {
        if guarded {
            return GuardedMemory::new(bytes, Some(part)).map(Self::Guarded);
        }
        SealedMemory::new("baton-kv", bytes).map(|memory| Self::Sealed(memory.of_parts(part)))
    }

    fn memory(&self) -> &dyn Memory {
        match self {
            Self::Sealed(memory) => memory,
            Self::Guarded(memory) => memory,
        }
    }
}

// SAFETY: the memory that it has keeps its promises, and it answers what that does.
unsafe impl Memory for Pool {
    fn place(&self) -> Place<'_> {
        self.memory().place()
    }

    fn len(&self) -> usize {
        self.memory().len()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.memory().file()
    }

    fn part(&self) -> Option<KvPart> {
        self.memory().part()
    }
}

// SAFETY: the mapping is that memory's own and stays as it is until it is dropped.
unsafe impl PoolMemory for Pool {
    fn as_ptr(&self) -> *mut u8 {
        match self {
            Self::Sealed(memory) => memory.as_ptr(),
            Self::Guarded(memory) => memory.as_ptr(),
        }
    }
}
