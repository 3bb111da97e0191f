//! The connections of a port. There are some places for connections that have proven nothing, and some for the others.
//! A new connection always gets a place: if there is none, the oldest one that has proven nothing makes room. So
//! strangers keep no member out, and a connection that has proven itself is never closed for others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How many connections a port has at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Those that have proven nothing.
    pub unproven_max: usize,
    /// Those that have.
    pub proven_max: usize,
}

impl Default for PortLimits {
    fn default() -> Self {
        // Enough that a connection is not yet the oldest when it has proven itself, however fast strangers come.
        Self { unproven_max: 1024, proven_max: 4096 }
    }
}

/// The connections that are open. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSlots {
    limits: PortLimits,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// What tells each that it has to make room, oldest first.
    unproven: BTreeMap<u64, oneshot::Sender<()>>,
    proven: BTreeSet<u64>,
}

/// A connection's place, given back when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    number: u64,
    places: ConnectionSlots,
}

impl ConnectionSlots {
    pub(super) fn new(limits: PortLimits) -> Self {
        Self { limits, taken: Arc::default() }
    }

    /// Gives a place to a connection that has proven nothing, and what tells it to make room; an error of that
    /// says that it never has to.
    pub(super) fn enter(&self) -> (ConnectionSlot, oneshot::Receiver<()>) {
        let mut taken = self.lock();
        if taken.unproven.len() >= self.limits.unproven_max {
            taken.evict_oldest();
        }
        let number = taken.next;
        taken.next += 1;
        let (evict, evicted) = oneshot::channel();
        taken.unproven.insert(number, evict);
        (ConnectionSlot { number, places: self.clone() }, evicted)
    }

    /// Closes the oldest connection that has proven nothing: the system has no room for another one.
    pub(super) fn make_room(&self) {
        self.lock().evict_oldest();
    }

    /// Locks it. A panic while it was held left nothing half done.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn evict_oldest(&mut self) {
        if let Some((_, evict)) = self.unproven.pop_first() {
            // An error says that it has just ended.
            let _ = evict.send(());
        }
    }
}

impl ConnectionSlot {
    /// Counts it among those that have proven themselves. False: it had to make room before, or there are too many
    /// of them.
    pub(super) fn prove(&self) -> bool {
        let mut taken = self.places.lock();
        if taken.proven.len() >= self.places.limits.proven_max || taken.unproven.remove(&self.number).is_none() {
            return false;
        }
        taken.proven.insert(self.number)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.unproven.remove(&self.number);
        taken.proven.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    #[test]
    fn the_oldest_that_has_proven_nothing_makes_room() {
        let places = ConnectionSlots::new(PortLimits { unproven_max: 2, proven_max: 1 });
        let (proven, mut stays) = places.enter();
        assert!(proven.prove());
        let (first, mut evicted) = places.enter();
        let (_second, mut waits) = places.enter();
        let (_third, _) = places.enter();
        assert_eq!(evicted.try_recv(), Ok(()));
        assert_eq!(waits.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(stays.try_recv(), Err(TryRecvError::Closed), "it never has to");
        assert!(!first.prove(), "it is late");
        places.make_room();
        assert_eq!(waits.try_recv(), Ok(()));
    }

    #[test]
    fn those_that_have_proven_themselves_are_bounded_too() {
        let places = ConnectionSlots::new(PortLimits { unproven_max: 4, proven_max: 1 });
        let ((first, _), (second, _)) = (places.enter(), places.enter());
        assert!(first.prove() && !second.prove());
        drop(first);
        assert!(second.prove(), "a place is given back");
        drop(second);
        assert!(places.lock().unproven.is_empty() && places.lock().proven.is_empty());
    }
}
