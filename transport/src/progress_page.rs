//! The page through which readers in other processes watch a progress word.
//!
//! The owner copies its word there and wakes who sleeps on it; readers map it for reading and sleep on its lower half.

use crate::mapping::Mapping;
use crate::memory::Memory;
use crate::sealed::SealedMemory;
use crate::wake::SharedFutex;
use rustix::thread::futex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the page.
const PAGE: usize = 4096;

/// The owner's end.
pub(crate) struct ProgressPage {
    memory: SealedMemory,
}

impl ProgressPage {
    pub(crate) fn new(word: u64) -> io::Result<Self> {
        let page = Self { memory: SealedMemory::new("baton-progress", PAGE)? };
        page.word().store(word, Ordering::SeqCst);
        Ok(page)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping begins with eight aligned bytes that are only ever accessed as this atomic.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().cast()) }
    }

    /// Shows `word`, unless it shows a later one, and wakes who sleeps.
    pub(crate) fn raise(&self, word: u64) {
        self.word().fetch_max(word, Ordering::SeqCst);
        // SAFETY: the lower half of the word, which nobody else accesses but by atomics and the kernel.
        let low = unsafe { AtomicU32::from_ptr(self.memory.as_ptr().cast::<u32>().add(LOW_HALF)) };
        // An error would be a bad address, and it is a good one.
        let _ = futex::wake(low, futex::Flags::empty(), i32::MAX as u32);
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.file().map(|(file, _)| file)
    }
}

/// Where the lower half of a word lies in it, in 32-bit numbers.
const LOW_HALF: usize = if cfg!(target_endian = "little") { 0 } else { 1 };

/// A reader's end.
pub(crate) struct ProgressView(Mapping);

impl ProgressView {
    pub(crate) fn new(file: OwnedFd) -> Result<Self, String> {
        Mapping::new(file.as_fd(), 0, PAGE).map(Self)
    }

    /// The word now.
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: the mapping begins with eight aligned bytes that its owner accesses as an atomic; a load of this size
        // needs no write access.
        unsafe { (*self.0.as_ptr().cast::<AtomicU64>()).load(Ordering::SeqCst) }
    }

    /// What a thread sleeps on until the word differs from `seen`.
    pub(crate) fn futex(&self, seen: u64) -> SharedFutex {
        let at = self.0.as_ptr().cast::<u32>().wrapping_add(LOW_HALF).cast_mut();
        SharedFutex { at, expected: seen as u32 }
    }
}
