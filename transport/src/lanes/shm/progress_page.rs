//! The page through which readers in other processes watch a progress word.
//!
//! The owner copies its word there and wakes the threads that sleep on it. Readers map it for reading and sleep on its
//! lower half.

use crate::wake::SharedFutex;
use kv_memory::{MapError, Memory, PeerMapping, SealedMemory};
use rustix::thread::futex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

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

    /// Shows `word`, unless it shows a later one, and wakes the threads that sleep on it.
    pub(crate) fn raise(&self, word: u64) {
        self.word().fetch_max(word, Ordering::SeqCst);
        // SAFETY: the lower half of the word, which is accessed by atomics and by the kernel alone.
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

/// Returns the word that a page shows; all that its owner wrote before it is seen from here on.
fn shown(word: &AtomicU64) -> u64 {
    // Memory that may only be read allows relaxed loads.
    let shown = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    shown
}

/// A reader's end.
pub(crate) struct ProgressView(PeerMapping);

impl ProgressView {
    pub(crate) fn new(file: OwnedFd) -> Result<Self, MapError> {
        PeerMapping::new(file.as_fd(), 0, PAGE).map(Self)
    }

    /// Returns the word now.
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: the mapping begins with eight aligned bytes that its owner accesses as an atomic, and they are
        // only loaded here.
        shown(unsafe { &*self.0.as_ptr().cast::<AtomicU64>() })
    }

    /// Returns what a thread sleeps on until the word differs from `seen`.
    pub(crate) fn futex(&self, seen: u64) -> SharedFutex {
        let at = self.0.as_ptr().cast::<u32>().wrapping_add(LOW_HALF).cast_mut();
        SharedFutex { at, expected: seen as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_the_word_sees_what_was_written_before_it() {
        let (word, mut bytes) = (AtomicU64::new(0), [0_u8; 64]);
        let at = bytes.as_mut_ptr().expose_provenance();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: nobody looks at the bytes before the word says that they are written.
                unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write_bytes(7, 64) };
                word.fetch_max(1, Ordering::SeqCst);
            });
            while shown(&word) == 0 {
                std::thread::yield_now();
            }
            // SAFETY: they are written, and not written any more.
            let written = unsafe { std::ptr::with_exposed_provenance::<[u8; 64]>(at).read() };
            assert_eq!(written, [7; 64]);
        });
    }
}
