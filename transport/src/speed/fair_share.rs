//! How much of a lane each of the links that read at once can be expected to have: the part that falls to it if
//! they share it alike.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The links of an agent over one lane that have bytes to bring now. They share a device, a network or a memory.
#[derive(Debug, Default)]
pub(crate) struct FairShare(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    busy: u32,
    /// What of the time so far fell to a link that had bytes to bring all the while.
    share: Duration,
    /// Up to when that is said.
    until: Option<Instant>,
}

impl Inner {
    fn pass(&mut self, now: Instant) -> Duration {
        if let Some(until) = self.until.filter(|_| self.busy > 0) {
            self.share += now.saturating_duration_since(until) / self.busy;
        }
        // Threads that come with their clocks may overtake each other.
        self.until = self.until.max(Some(now));
        self.share
    }
}

impl FairShare {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link has bytes to bring from now on. What of the time fell, until now, to one that had all the while.
    pub(crate) fn enter(&self, now: Instant) -> Duration {
        let mut inner = self.lock();
        let share = inner.pass(now);
        inner.busy += 1;
        share
    }

    /// Returns what of the time fell, until now, to a link that had bytes to bring all the while.
    pub(crate) fn share(&self, now: Instant) -> Duration {
        self.lock().pass(now)
    }

    /// A link that entered has none to bring any more.
    pub(crate) fn leave(&self) {
        self.lock().busy -= 1;
    }
}
