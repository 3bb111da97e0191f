//! A counter that a thread sleeps on until it changes.
//!
//! It stands alone, as `sleep_flag` does: how the thread sleeps until the counter differs is another's.

use super::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::planted_bugs::{self, Bug};

/// The sleeper looks at the counter, then for work, then sleeps on what it saw, so that no wake is lost.
#[derive(Default)]
pub(crate) struct Tally {
    count: AtomicU32,
    asleep: AtomicBool,
}

impl Tally {
    /// Returns what a futex is called on.
    pub(crate) fn count(&self) -> &AtomicU32 {
        &self.count
    }

    pub(crate) fn now(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Sleeps by `wait`, which returns as soon as the counter differs from what was seen.
    pub(crate) fn sleep(&self, wait: impl FnOnce()) {
        self.asleep.store(true, Ordering::SeqCst);
        wait();
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// There is something to look at. Whether somebody may sleep who has to be woken.
    pub(crate) fn wake(&self) -> bool {
        if planted_bugs::is(Bug::CountedTooLate) {
            let asleep = self.asleep.load(Ordering::SeqCst);
            self.count.fetch_add(1, Ordering::SeqCst);
            return asleep;
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        self.asleep.load(Ordering::SeqCst)
    }
}
