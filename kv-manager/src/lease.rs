//! Leases: the rights of readers on this owner's blocks, with their deadlines.
//!
//! A lease is live, then released or lapsed, for ever. This table knows times, ids and answers; the pools
//! know which blocks a live lease covers, and the manager keeps the two in step.
//!
//! Leases live by a clock of their own, which stands while their owner stands still: it hears no renewal
//! meanwhile, and only it gives their blocks away. So a pause takes nothing from any lease, and one that was over
//! before it stays over.

use domain::planted_bugs::{self, Bug};
use domain::{BlockRef, Generation, LeaseId, SeqKey, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A live lease.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// The sequence that was offered.
    pub(crate) key: SeqKey,
    /// Positions that the reader was promised.
    pub(crate) tokens: u32,
    /// Positions of those that are written and valid.
    pub(crate) ready: u32,
    /// When positions below this are written, a copy into its blocks that was planned before the offer has been
    /// made; until then `ready` stays.
    pub(crate) copied_until: u32,
    /// The blocks it covers, with their generations at the offer.
    pub(crate) blocks: Vec<(BlockRef, Generation)>,
    /// How long it lives without renewal.
    pub(crate) duration: Duration,
    /// It lives no longer than this, however often it is renewed. By the owner's clock until the table takes it,
    /// and by that of leases from then on.
    pub(crate) until: Time,
    /// It has lapsed at this time, by the clock of leases. The table sets it.
    pub(crate) expiry: Time,
    /// The reader's tick count at the last renewal that counted.
    pub(crate) ticks: Option<u64>,
}

/// All live leases, and the answers that readers may ask for again.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTable {
    live: BTreeMap<LeaseId, Lease>,
    /// `(expiry, lease)` of every live lease. Ordered, so that the earliest is at hand and a renewal moves its own
    /// entry: no stale entries that would need a bound.
    deadlines: BTreeSet<(Time, LeaseId)>,
    /// Leases whose release was answered as valid and not acknowledged yet, oldest answer first. An invalid answer
    /// needs no memory: it is also the answer to a lease that is not known. Acknowledgements come soon and about
    /// in order, so searching from the front is short.
    valid: VecDeque<LeaseId>,
    answers_max: usize,
    leases_max: usize,
    last: LeaseId,
    /// How long the owner stood still so far: its clock less this is the clock of leases.
    stood_still: Duration,
}

impl LeaseTable {
    /// Makes an empty table with the given bounds.
    pub(crate) fn new(answers_max: usize, leases_max: usize) -> Self {
        Self {
            live: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            valid: VecDeque::new(),
            answers_max,
            leases_max,
            last: LeaseId(0),
            stood_still: Duration::ZERO,
        }
    }

    /// Notes that the owner stood still for so long.
    pub(crate) fn stand_still(&mut self, pause: Duration) {
        if !planted_bugs::is(Bug::PauseEatsLeases) {
            self.stood_still += pause;
        }
    }

    /// Returns a time of the owner's clock by the clock of leases.
    fn at(&self, now: Time) -> Time {
        Time::ZERO + now.since(Time::ZERO + self.stood_still)
    }

    /// Returns whether no further lease can be granted now.
    pub(crate) fn is_full(&self) -> bool {
        self.live.len() >= self.leases_max
    }

    /// Makes the lease live, under an id never used before.
    pub(crate) fn grant(&mut self, now: Time, mut lease: Lease) -> LeaseId {
        self.last.0 += 1;
        lease.until = self.at(lease.until);
        lease.expiry = (self.at(now) + lease.duration).min(lease.until);
        self.deadlines.insert((lease.expiry, self.last));
        self.live.insert(self.last, lease);
        self.last
    }

    /// Returns the live lease of that id.
    pub(crate) fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.live.get(&id)
    }

    /// Returns all live leases.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.live.iter().map(|(&id, lease)| (id, lease))
    }

    /// Returns whether the lease is live and its time has not passed.
    pub(crate) fn is_alive(&self, now: Time, id: LeaseId) -> bool {
        self.live.get(&id).is_some_and(|lease| self.at(now) < lease.expiry)
    }

    /// Notes that positions below `tokens` of the lease's sequence are written and valid.
    pub(crate) fn fulfil(&mut self, id: LeaseId, tokens: u32) {
        if let Some(lease) = self.live.get_mut(&id).filter(|lease| tokens >= lease.copied_until) {
            lease.ready = lease.ready.max(tokens.min(lease.tokens));
        }
    }

    /// Prolongs a lease that has not lapsed, if its reader's tick count rose. Whether it is alive.
    pub(crate) fn renew(&mut self, now: Time, id: LeaseId, ticks: u64) -> bool {
        let now = self.at(now);
        let Some(lease) = self.live.get_mut(&id) else { return false };
        if now >= lease.expiry && !planted_bugs::is(Bug::LateRenewalRevives) {
            return false;
        }
        if lease.ticks.is_none_or(|last| ticks > last) {
            lease.ticks = Some(ticks);
            self.deadlines.remove(&(lease.expiry, id));
            lease.expiry = (now + lease.duration).min(lease.until);
            self.deadlines.insert((lease.expiry, id));
        }
        true
    }

    /// Ends a live lease.
    pub(crate) fn end(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.live.remove(&id)?;
        self.deadlines.remove(&(lease.expiry, id));
        Some(lease)
    }

    /// Ends one lease that has lapsed by `now`.
    pub(crate) fn lapse(&mut self, now: Time) -> Option<(LeaseId, Lease)> {
        let &(expiry, id) = self.deadlines.first()?;
        if expiry > self.at(now) {
            return None;
        }
        self.end(id).map(|lease| (id, lease))
    }

    /// Returns when the next lease lapses.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(expiry, _)| expiry + self.stood_still)
    }

    /// Keeps a valid answer; forgets the oldest when there are too many.
    pub(crate) fn keep_valid(&mut self, id: LeaseId) {
        self.valid.push_back(id);
        if self.valid.len() > self.answers_max {
            self.valid.pop_front();
        }
    }

    /// Returns whether a valid answer is kept for the lease.
    pub(crate) fn was_valid(&self, id: LeaseId) -> bool {
        self.valid.contains(&id)
    }

    /// Returns how many valid answers are kept.
    pub(crate) fn answers_kept(&self) -> usize {
        self.valid.len()
    }

    /// Forgets the answer.
    pub(crate) fn ack(&mut self, id: LeaseId) {
        if let Some(place) = self.valid.iter().position(|&kept| kept == id) {
            self.valid.remove(place);
        }
    }

    /// Feeds what becomes of the leases that are alive and of the answers that are kept. Times count from `now`.
    #[cfg(feature = "explore")]
    pub(crate) fn digest(&self, now: Time, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        for (id, lease) in &self.live {
            (id, lease.key, lease.tokens, lease.ready, lease.copied_until, lease.ticks, &lease.blocks).hash(hasher);
            (lease.expiry.since(self.at(now)), lease.duration).hash(hasher);
        }
        (self.last, &self.valid).hash(hasher);
    }

    /// Asserts that deadlines and leases match and that the bounds hold.
    pub(crate) fn check(&self) {
        let expected: BTreeSet<_> = self.live.iter().map(|(&id, lease)| (lease.expiry, id)).collect();
        assert_eq!(self.deadlines, expected, "every live lease has its one deadline");
        assert!(self.live.len() <= self.leases_max && self.valid.len() <= self.answers_max, "a bound is exceeded");
        assert!(self.valid.iter().all(|id| !self.live.contains_key(id)), "a lease is live and released");
    }
}
