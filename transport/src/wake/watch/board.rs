//! Where a word is shown to those who cannot hang a bell on it: other processes, which look there and sleep until
//! it is another.
//!
//! It stands alone, so that tests run it in every order of its steps (`tests/shuttle.rs`): the word and the place
//! are others'.

use super::sync::{AtomicBool, Ordering};
use crate::planted_bugs::{self, Bug};

/// Whether the word is shown yet. Whoever raises it changes it first, and says so here then.
pub(crate) struct Board {
    is_shown: AtomicBool,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { is_shown: AtomicBool::new(false) }
    }

    /// From now on every raise is shown. `show` shows a word unless it shows a later one, and wakes who sleeps there.
    pub(crate) fn open(&self, word: impl Fn() -> u64, show: impl Fn(u64)) {
        if planted_bugs::is(Bug::BoardOpenedLate) {
            show(word());
            return self.is_shown.store(true, Ordering::SeqCst);
        }
        self.is_shown.store(true, Ordering::SeqCst);
        // For raises before the line above.
        show(word());
    }

    /// The word was raised: shows it, if there is anybody to see it.
    pub(crate) fn raised(&self, word: u64, show: impl Fn(u64)) {
        if self.is_shown.load(Ordering::SeqCst) {
            show(word);
        }
    }
}
