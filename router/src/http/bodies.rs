//! The bytes of all bodies that are held at once, and which body is given up when they are too many.
//!
//! The largest of those that are not complete is given up. So bodies that a client begins and does not end never keep
//! out a smaller one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All bodies that are held.
#[derive(Debug)]
pub(crate) struct Bodies {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of all of them.
    bytes: usize,
    next: u64,
    held: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    bytes: usize,
    complete: bool,
    /// Told when the body is given up.
    given_up: Arc<Notify>,
}

/// The share of one body, which it gives back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    all: Arc<Bodies>,
    number: u64,
    given_up: Arc<Notify>,
}

/// There is no room for a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Bodies {
    /// Makes a limit of so many bytes for all bodies together.
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, state: Mutex::default() })
    }

    /// Returns the most bytes of all bodies together.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns a share, without bytes yet, for a body that begins.
    pub(super) fn begin(self: &Arc<Self>) -> Share {
        let given_up = Arc::new(Notify::new());
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        state.held.insert(number, Entry { bytes: 0, complete: false, given_up: given_up.clone() });
        Share { all: self.clone(), number, given_up }
    }

    /// Returns a share of so many bytes for what a body stands for, which is there already. Errors: there is no room.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Share, Full> {
        let mut share = self.begin();
        share.take(bytes)?;
        share.complete();
        Ok(share)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a body's bytes off the sum, if it was not given up.
    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.held.remove(&number)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Returns the largest body that is not complete.
    fn largest(&self) -> Option<u64> {
        let coming = self.held.iter().filter(|(_, entry)| !entry.complete);
        coming.max_by_key(|(_, entry)| entry.bytes).map(|(&number, _)| number)
    }
}

impl Share {
    /// Takes `more` bytes for the body; larger bodies that are not complete are given up for them. Errors: this is the
    /// largest, or it was given up.
    pub(super) fn take(&mut self, more: usize) -> Result<(), Full> {
        let mut state = self.all.state();
        state.held.get_mut(&self.number).ok_or(Full)?.bytes += more;
        state.bytes += more;
        while state.bytes > self.all.bytes_max {
            let largest = state.largest().expect("this one is not complete");
            let entry = state.remove(largest).expect("it is held");
            if largest == self.number {
                return Err(Full);
            }
            entry.given_up.notify_one();
        }
        Ok(())
    }

    /// Says that the body is complete: it is not given up any more.
    pub(super) fn complete(&self) {
        if let Some(entry) = self.all.state().held.get_mut(&self.number) {
            entry.complete = true;
        }
    }

    /// Waits until the body is given up for another.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.state().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn the_largest_that_is_not_complete_is_given_up() {
        let bodies = Bodies::new(100);
        let [mut whole, mut large, mut small] = [(); 3].map(|()| bodies.begin());
        whole.take(50).expect("there is room");
        whole.complete();
        large.take(40).expect("there is room");
        small.take(10).expect("there is room");
        assert!(large.given_up().now_or_never().is_none());
        small.take(5).expect("the large one is given up");
        assert!(large.given_up().now_or_never().is_some());
        assert_eq!(large.take(1), Err(Full));
        // The one that wants more is the largest itself.
        let mut next = bodies.begin();
        assert_eq!(next.take(36), Err(Full));
        assert!(small.given_up().now_or_never().is_none() && whole.given_up().now_or_never().is_none());
        drop((whole, large, next));
        small.take(85).expect("the rest is free");
        drop(small);
        assert_eq!(bodies.state().bytes, 0);
    }
}
