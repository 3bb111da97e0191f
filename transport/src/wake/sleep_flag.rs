//! How a thread that looks for work and those that bring some agree, so that no wake is lost and none is for nothing.
//!
//! It stands alone, so that tests run it in every order of its steps (`tests/shuttle.rs`): what the thread sleeps on is
//! another's.

use super::atomic::{AtomicBool, Ordering};
use crate::planted_bugs::{self, Bug};

/// Of one thread that sleeps, with any that wake it.
#[derive(Default)]
pub(crate) struct SleepFlag {
    /// There is something to look at.
    rung: AtomicBool,
    asleep: AtomicBool,
}

impl SleepFlag {
    /// The thread is about to look for work: whoever has some from now on rings again.
    pub(crate) fn answer(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }

    /// Returns whether somebody rang since the last answer.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// The thread is about to sleep. Whether it may: not if somebody rang already.
    pub(crate) fn lie_down(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        // Whoever rings before this line is seen by it, and after it sees who sleeps.
        !self.is_rung() || planted_bugs::is(Bug::RingOverheard)
    }

    /// The thread does not sleep any more.
    pub(crate) fn get_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// There is something to look at. Whether the thread is to be woken by what it sleeps on.
    pub(crate) fn ring(&self) -> bool {
        self.rung.store(true, Ordering::SeqCst);
        self.asleep.swap(false, Ordering::SeqCst)
    }
}
