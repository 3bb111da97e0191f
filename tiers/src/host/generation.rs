//! How a slot of a slab that changes is told from one that does not, without a lock: a number that is odd while
//! the slot is written. (A sequence lock; H.-J. Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012.)
//!
//! It stands alone, so that a test runs it in every order that memory allows (`tests/loom.rs`).

use super::atomic::{AtomicU64, Ordering, fence};

/// Returns the number in `word`; all that its owner wrote before it is seen from here on.
pub(super) fn now(word: &AtomicU64) -> u64 {
    // Memory that may only be read allows relaxed loads.
    let now = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    now
}

/// Has a slot written, by the one thread that does.
pub(super) fn change<T>(generation: &AtomicU64, write: impl FnOnce() -> T) -> T {
    let changed = generation.load(Ordering::Relaxed) | 1;
    // Who sees anything of what follows sees the odd generation too, and who sees the even one sees all of it.
    generation.store(changed, Ordering::Relaxed);
    fence(Ordering::Release);
    let written = write();
    generation.store(changed + 1, Ordering::Release);
    written
}

/// Has a slot looked at. Whether it was in the generation `seen`, which is an even one, all the time; otherwise
/// what was seen is anything.
pub(super) fn look(generation: &AtomicU64, seen: u64, look: impl FnOnce()) -> bool {
    if seen % 2 == 1 || now(generation) != seen {
        return false;
    }
    look();
    // If a byte of what was looked at is of a later change, its odd generation is seen now.
    fence(Ordering::Acquire);
    now(generation) == seen
}
