//! Who is to be woken by the next raise of a word.
//!
//! It stands alone, so that tests run it in every order of its steps (`tests/shuttle.rs`): the word is another's.

use super::sync::{AtomicBool, Mutex, Ordering, PoisonError};
use crate::planted_bugs::{self, Bug};

/// Those who wait for a raise. Whoever raises changes the word first, and rings then; whoever waits hangs its bell
/// first, and looks at the word then.
pub(crate) struct Bells<W> {
    /// Whether there are any: a raise that nobody waits for costs one load.
    any: AtomicBool,
    waiting: Mutex<Vec<W>>,
}

impl<W> Bells<W> {
    pub(crate) fn new() -> Self {
        Self { any: AtomicBool::new(false), waiting: Mutex::new(Vec::new()) }
    }

    /// The next ring is for `bell` too, once. `is_same`: whether it hangs already.
    pub(crate) fn hang(&self, bell: W, is_same: impl Fn(&W) -> bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(is_same) {
            waiting.push(bell);
        }
        self.any.store(true, Ordering::SeqCst);
    }

    /// Rings for all that hang.
    pub(crate) fn ring(&self, ring: impl Fn(W)) {
        if self.any.load(Ordering::SeqCst) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if planted_bugs::is(Bug::BellForgotten) {
                waiting.drain(..).for_each(ring);
                drop(waiting);
                return self.any.store(false, Ordering::SeqCst);
            }
            self.any.store(false, Ordering::SeqCst);
            waiting.drain(..).for_each(ring);
        }
    }
}
