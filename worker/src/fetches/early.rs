//! Offers that came before their submit, and attempts whose offer is given back whenever it comes.

use super::AttemptId;
use crate::config::{CLOSED_ATTEMPTS_MAX, EARLY_MESSAGES_MAX, EARLY_OFFERS_MAX};
use crate::state::WorkerState;
use domain::handoff::{Offer, PeerBody};
use domain::{LeaseId, Time, WorkerId};
use std::collections::VecDeque;
use std::time::Duration;

/// The offers, oldest first, each with the messages that followed it.
#[derive(Default)]
pub(super) struct EarlyOffers {
    kept: VecDeque<EarlyOffer>,
    /// The last attempts that take no offer, oldest first: it was still to come when they were over, or was given
    /// back before they began.
    closed: VecDeque<AttemptId>,
}

struct EarlyOffer {
    from: WorkerId,
    offer: Offer,
    followed_by: Vec<PeerBody>,
    arrived: Time,
}

impl EarlyOffers {
    /// Takes out what this owner offered to an attempt that begins, with what it said after that.
    pub(super) fn take(&mut self, owner: WorkerId, id: AttemptId) -> Option<(Offer, Vec<PeerBody>)> {
        let at = self.kept.iter().position(|early| early.from == owner && attempt(&early.offer) == id)?;
        self.kept.remove(at).map(|early| (early.offer, early.followed_by))
    }

    /// Keeps an offer of which no submit is here, or gives it back.
    pub(super) fn keep(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, offer: Offer) {
        if self.at(from, offer.lease).is_some() {
            // One that came twice would be released when the copy's time is over, while its reader reads.
            core.meters.stale_lease.increment(1);
        } else if self.is_closed(attempt(&offer)) {
            core.send(from, PeerBody::Release { lease: offer.lease });
        } else {
            if self.kept.len() == EARLY_OFFERS_MAX
                && let Some(oldest) = self.kept.pop_front()
            {
                self.give_back(core, &oldest);
            }
            self.kept.push_back(EarlyOffer { from, offer, followed_by: Vec::new(), arrived: now });
        }
    }

    /// Keeps what an owner says after an early offer. What belongs to no lease is stale and counted.
    pub(super) fn follow(&mut self, core: &mut WorkerState, from: WorkerId, lease: LeaseId, body: PeerBody) {
        match self.at(from, lease) {
            Some(at) if matches!(body, PeerBody::Withdraw { .. }) => drop(self.kept.remove(at)),
            Some(at) if self.kept[at].followed_by.len() == EARLY_MESSAGES_MAX => {
                self.kept.remove(at).into_iter().for_each(|early| self.give_back(core, &early));
            }
            Some(at) => self.kept[at].followed_by.push(body),
            None if matches!(body, PeerBody::Released { .. }) => core.send(from, PeerBody::ReleaseAck { lease }),
            None => core.meters.stale_lease.increment(1),
        }
    }

    /// Gives back what has waited for its submit as long as a submit waits for its offer.
    pub(super) fn tick(&mut self, core: &mut WorkerState, now: Time) {
        while self.next_deadline(core).is_some_and(|due| due <= now) {
            if let Some(early) = self.kept.pop_front() {
                self.give_back(core, &early);
            }
        }
    }

    /// Returns when `tick` must be called at the latest.
    pub(super) fn next_deadline(&self, core: &WorkerState) -> Option<Time> {
        self.kept.front().map(|early| early.arrived + core.config.handoff_wait)
    }

    /// Prolongs every wait by a pause of this worker.
    pub(super) fn stood_still(&mut self, pause: Duration) {
        self.kept.iter_mut().for_each(|early| early.arrived = early.arrived + pause);
    }

    /// Drops what the old life of an owner offered.
    pub(super) fn owner_restarted(&mut self, owner: WorkerId) {
        self.kept.retain(|early| early.from != owner);
    }

    /// Returns whether an offer of this peer is kept.
    pub(super) fn has_offer_of(&self, peer: WorkerId) -> bool {
        self.kept.iter().any(|early| early.from == peer)
    }

    /// Returns how many offers are kept.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Notes that the attempt takes no offer from now on.
    pub(super) fn close(&mut self, id: AttemptId) {
        if self.closed.len() == CLOSED_ATTEMPTS_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back(id);
    }

    /// Returns whether the attempt takes no offer.
    pub(super) fn is_closed(&self, id: AttemptId) -> bool {
        self.closed.contains(&id)
    }

    /// Gives an offer back. Its lease is over from now on, so that a copy of it must not be taken either.
    fn give_back(&mut self, core: &mut WorkerState, early: &EarlyOffer) {
        self.close(attempt(&early.offer));
        core.send(early.from, PeerBody::Release { lease: early.offer.lease });
    }

    fn at(&self, from: WorkerId, lease: LeaseId) -> Option<usize> {
        self.kept.iter().position(|early| early.from == from && early.offer.lease == lease)
    }
}

fn attempt(offer: &Offer) -> AttemptId {
    (offer.request, offer.epoch)
}

#[cfg(feature = "explore")]
impl EarlyOffers {
    /// Feeds everything that their future depends on. Times count from `now`.
    pub(super) fn digest(&self, now: Time, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        for early in &self.kept {
            let of_it = format!("{:?} {:?}", early.offer, early.followed_by);
            (early.from, of_it, now.since(early.arrived)).hash(hasher);
        }
        self.closed.hash(hasher);
    }
}
