//! Memory of a KV pool. Outlives its worker as long as somebody reads from it, as mapped memory does.

use engine::device::PoolMemory;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::{Memory, Place};

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// Zeroed words.
pub(crate) struct Pool(Box<[AtomicU64]>);

impl Pool {
    pub(crate) fn zeroed(bytes: usize) -> Self {
        Self((0..bytes.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect())
    }

    /// The word at a byte offset, which is a multiple of [`WORD`].
    pub(crate) fn get(&self, byte: usize) -> u64 {
        self.0[byte / WORD].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, byte: usize, word: u64) {
        self.0[byte / WORD].store(word, Ordering::Relaxed);
    }
}

// SAFETY: the words are never exchanged or resized, and atomics may be written through a shared reference.
unsafe impl Memory for Pool {
    /// As with memory of a device, nothing but the device and the played copiers touches it.
    fn place(&self) -> Place<'_> {
        unreachable!("no worker in virtual time asks where its pools are")
    }

    fn len(&self) -> usize {
        self.0.len() * WORD
    }
}

// SAFETY: as above.
unsafe impl PoolMemory for Pool {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }
}
