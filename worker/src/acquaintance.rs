//! Which peers are connected and since when nobody needed them, and which have left. Peers are connected when they
//! are needed: a worker of a large cluster has to do with few of the others at a time.

use crate::sessions::SessionId;
use domain::{Incarnation, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A connection that nothing needed for so long ends.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(300);

/// What is known of the peers beside where they are.
#[derive(Debug, Default)]
pub(crate) struct Acquaintance {
    /// Those that are connected, and when each was last needed.
    connected: BTreeMap<WorkerId, Time>,
    /// Those that a router said have left, in which life. It may be that only this router lost them.
    left: BTreeMap<WorkerId, Incarnation>,
    /// The sessions whose routers say that they are there; of whom none does so has no entry.
    there: BTreeMap<WorkerId, BTreeSet<SessionId>>,
}

/// What is to be done about a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parting {
    /// Its connection is of no use.
    Disconnect(WorkerId),
    /// It left, in this life.
    Forget(WorkerId, Incarnation),
}

impl Acquaintance {
    /// A peer is connected, or needed where it is.
    pub(crate) fn connected(&mut self, now: Time, peer: WorkerId) {
        self.connected.insert(peer, now);
    }

    /// Something was sent to a peer.
    pub(crate) fn used(&mut self, now: Time, peer: WorkerId) {
        if let Some(used) = self.connected.get_mut(&peer) {
            *used = now;
        }
    }

    /// A peer is connected no more.
    pub(crate) fn lost(&mut self, peer: WorkerId) {
        self.connected.remove(&peer);
    }

    /// A router introduced it: it is there.
    pub(crate) fn introduced(&mut self, session: SessionId, peer: WorkerId) {
        self.left.remove(&peer);
        self.there.entry(peer).or_default().insert(session);
    }

    /// A router says that it left.
    pub(crate) fn left(&mut self, session: SessionId, peer: WorkerId, life: Incarnation) {
        self.left.insert(peer, life);
        if let Some(sessions) = self.there.get_mut(&peer) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.there.remove(&peer);
            }
        }
    }

    /// A session is over, and its router says nothing of anybody any more.
    pub(crate) fn closed(&mut self, session: SessionId) {
        self.there.retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
    }

    /// Peers to part from now, of those that are not needed.
    pub(crate) fn partings(&mut self, now: Time, is_needed: impl Fn(WorkerId) -> bool) -> Vec<Parting> {
        let mut partings = Vec::new();
        for (&peer, used) in &mut self.connected {
            if now.since(*used) >= IDLE_MAX {
                if is_needed(peer) {
                    *used = now;
                } else {
                    partings.push(Parting::Disconnect(peer));
                }
            }
        }
        let is_here = |peer: &WorkerId| self.there.contains_key(peer) || self.connected.contains_key(peer);
        let gone = self.left.extract_if(.., |peer, _| !is_here(peer) && !is_needed(*peer));
        partings.extend(gone.map(|(peer, life)| Parting::Forget(peer, life)));
        for parting in &partings {
            if let Parting::Disconnect(peer) = parting {
                self.connected.remove(peer);
            }
        }
        partings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: WorkerId = WorkerId(1);
    const LIFE: Incarnation = Incarnation(7);

    #[test]
    fn a_connection_ends_that_nothing_needed_for_long() {
        let mut peers = Acquaintance::default();
        let at = |times: u32| Time::ZERO + IDLE_MAX / 2 * times;
        peers.connected(at(0), PEER);
        peers.used(at(1), PEER);
        assert_eq!(peers.partings(at(2), |_| false), []);
        assert_eq!(peers.partings(at(3), |_| true), [], "a lease or a fetch needs it");
        assert_eq!(peers.partings(at(4), |_| false), []);
        assert_eq!(peers.partings(at(5), |_| false), [Parting::Disconnect(PEER)]);
        assert_eq!(peers.partings(at(9), |_| false), []);
        // What is sent to one that is not connected connects it, which is told.
        peers.used(at(9), PEER);
        assert_eq!(peers.partings(at(12), |_| false), []);
    }

    #[test]
    fn who_left_is_forgotten_once_nothing_is_to_be_had_of_it() {
        let mut peers = Acquaintance::default();
        peers.connected(Time::ZERO, PEER);
        peers.introduced(SessionId(1), PEER);
        peers.left(SessionId(1), PEER, LIFE);
        assert_eq!(peers.partings(Time::ZERO, |_| false), []);
        peers.lost(PEER);
        assert_eq!(peers.partings(Time::ZERO, |_| true), []);
        assert_eq!(peers.partings(Time::ZERO, |_| false), [Parting::Forget(PEER, LIFE)]);
        assert_eq!(peers.partings(Time::ZERO, |_| false), []);
        // Whoever is introduced again is there.
        peers.left(SessionId(1), PEER, LIFE);
        peers.introduced(SessionId(1), PEER);
        assert_eq!(peers.partings(Time::ZERO, |_| false), []);
        // So is whom another router has, as long as that one is heard.
        peers.introduced(SessionId(2), PEER);
        peers.left(SessionId(1), PEER, LIFE);
        assert_eq!(peers.partings(Time::ZERO, |_| false), []);
        peers.closed(SessionId(2));
        assert_eq!(peers.partings(Time::ZERO, |_| false), [Parting::Forget(PEER, LIFE)]);
        assert!(peers.there.is_empty() && peers.left.is_empty());
        // Nothing is kept of whom no router speaks any more, whether or not somebody said that it left.
        peers.introduced(SessionId(3), PEER);
        peers.closed(SessionId(3));
        assert!(peers.there.is_empty());
        peers.introduced(SessionId(4), PEER);
        peers.left(SessionId(4), PEER, LIFE);
        assert!(peers.there.is_empty());
    }
}
