//! What leases should be, written down a second time and in the simplest way: the reference that the real machines are
//! compared with. It sees every message that the owner handles, and computes nothing from the manager's state.

use domain::{Incarnation, LeaseId, Time};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ended {
    Released,
    Lapsed,
    Withdrawn,
    /// With its owner.
    Crashed,
}

/// A lease as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Ghost {
    pub(crate) life: Incarnation,
    pub(crate) lease: LeaseId,
    pub(crate) rank: u8,
    duration: Duration,
    expiry: Time,
    ticks: Option<u64>,
    pub(crate) ended: Option<Ended>,
    /// What its release was answered, while the reader may ask again.
    pub(crate) answer: Option<bool>,
    /// Whether its own life ever answered it as valid.
    pub(crate) was_valid: bool,
}

impl Ghost {
    pub(crate) fn granted(now: Time, life: Incarnation, lease: LeaseId, rank: u8, duration: Duration) -> Self {
        let expiry = now + duration;
        Self { life, lease, rank, duration, expiry, ticks: None, ended: None, answer: None, was_valid: false }
    }

    /// It has lapsed, and nobody said so yet.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.ended.is_none() && now >= self.expiry
    }

    pub(crate) fn end(&mut self, how: Ended) {
        self.ended.get_or_insert(how);
    }

    pub(crate) fn renewed(&mut self, now: Time, ticks: u64) {
        if self.ended.is_none() && self.ticks.is_none_or(|last| ticks > last) {
            self.ticks = Some(ticks);
            self.expiry = now + self.duration;
        }
    }

    /// What a release must be answered, given whether all that the lease covers was written by a step that succeeded.
    pub(crate) fn released(&mut self, written: bool) -> bool {
        let valid = match self.answer {
            Some(before) => before,
            None => self.ended.is_none() && written,
        };
        self.end(Ended::Released);
        self.answer = Some(valid);
        self.was_valid |= valid;
        valid
    }

    /// The reader has its answer, and asks no more. A copy of its question may still arrive, for which nothing is kept.
    pub(crate) fn acknowledged(&mut self) {
        self.answer = self.answer.map(|_| false);
    }

    pub(crate) fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        (self.life, self.ended, self.answer, self.was_valid).hash(hasher);
        if self.ended.is_none() {
            (self.expiry.since(now), self.ticks).hash(hasher);
        }
    }
}
