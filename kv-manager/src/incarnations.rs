//! Which life of each peer is known, and which messages are of an earlier one.

use domain::handoff::PeerMessage;
use domain::planted_bugs::{self, Bug};
use domain::{Incarnation, WorkerId};
use std::collections::BTreeMap;

/// The lives that a worker knows: its own and the last one of each peer that it heard of.
#[derive(Clone, Debug, Hash)]
pub struct Incarnations {
    own: Incarnation,
    peers: BTreeMap<WorkerId, Incarnation>,
}

/// How the lives that a message names stand to those that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Both are the present ones.
    Current,
    /// Its sender came back since it was last heard: what the earlier life was promised, or promised, is void.
    Restarted,
    /// It is to or from an earlier life, and must not be handled.
    Stale,
}

impl Incarnations {
    /// Makes the table of a worker in its life `own`, which has heard of no peer yet.
    pub fn new(own: Incarnation) -> Self {
        Self { own, peers: BTreeMap::new() }
    }

    /// Returns the last life of `peer` that was heard of, for messages to it.
    pub fn of(&self, peer: WorkerId) -> Option<Incarnation> {
        self.peers.get(&peer).copied()
    }

    /// Learns which life a peer has; [`Heard::Stale`]: it is known to have a later one.
    pub fn learn(&mut self, peer: WorkerId, life: Incarnation) -> Heard {
        match self.peers.get(&peer).copied() {
            Some(known) if life < known => return Heard::Stale,
            Some(known) if life == known => return Heard::Current,
            _ => {}
        }
        match self.peers.insert(peer, life) {
            Some(_) => Heard::Restarted,
            None => Heard::Current,
        }
    }

    /// Forgets a peer that left in this life; `false`: a later one is known, or none.
    pub fn forget(&mut self, peer: WorkerId, life: Incarnation) -> bool {
        let left = self.of(peer) == Some(life);
        if left {
            self.peers.remove(&peer);
        }
        left
    }

    /// Checks the lives that a message names, and learns the sender's.
    pub fn hear(&mut self, message: &PeerMessage) -> Heard {
        if planted_bugs::is(Bug::NoIncarnationCheck) {
            return Heard::Current;
        }
        if message.to_incarnation.is_some_and(|life| life != self.own) {
            return Heard::Stale;
        }
        self.learn(message.from, message.from_incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::LeaseId;
    use domain::handoff::PeerBody;

    #[test]
    fn earlier_lives_are_stale_for_ever() {
        let mut lives = Incarnations::new(Incarnation(5));
        let (peer, body) = (WorkerId(1), PeerBody::Release { lease: LeaseId(1) });
        let mut hear = |from, to: Option<u64>| {
            let (from_incarnation, to_incarnation) = (Incarnation(from), to.map(Incarnation));
            lives.hear(&PeerMessage { from: peer, from_incarnation, to_incarnation, body: body.clone() })
        };
        assert_eq!(hear(9, Some(4)), Heard::Stale, "to an earlier life; its sender's life is not learnt");
        assert_eq!(hear(2, None), Heard::Current);
        assert_eq!(hear(2, Some(5)), Heard::Current);
        assert_eq!(hear(3, Some(5)), Heard::Restarted);
        assert_eq!(hear(2, Some(5)), Heard::Stale);
        assert_eq!(hear(3, None), Heard::Current);
        assert_eq!(lives.of(peer), Some(Incarnation(3)));
        assert!(!lives.forget(peer, Incarnation(2)), "it is there in a later life");
        assert!(lives.forget(peer, Incarnation(3)));
        assert_eq!(lives.of(peer), None);
    }
}
