//! What leases should be, written down a second time and in the simplest way: the reference that the real machines are
//! compared with. It sees every message that an owner handles, and computes nothing from the manager's state.

use domain::handoff::Offer;
use domain::{BlockId, Incarnation, LeaseId, RequestId, WorkerId};
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
#[derive(Clone, Debug, Hash)]
pub(crate) struct Ghost {
    pub(crate) owner: WorkerId,
    pub(crate) life: Incarnation,
    pub(crate) lease: LeaseId,
    pub(crate) reader: WorkerId,
    pub(crate) request: RequestId,
    pub(crate) blocks: Vec<BlockId>,
    duration: Duration,
    /// Until it lapses, by its owner's clock.
    left: Duration,
    ticks: Option<u64>,
    /// All that it covers was written by steps that succeeded.
    pub(crate) written: bool,
    pub(crate) ended: Option<Ended>,
    /// What its release was answered, while the reader may ask again.
    answer: Option<bool>,
    /// Whether its own life ever answered it as valid.
    pub(crate) was_valid: bool,
}

impl Ghost {
    pub(crate) fn granted(owner: WorkerId, life: Incarnation, reader: WorkerId, offer: &Offer) -> Self {
        Self {
            owner,
            life,
            lease: offer.lease,
            reader,
            request: offer.request,
            blocks: offer.groups[0].blocks.iter().map(|&(block, _)| block).collect(),
            duration: offer.duration,
            left: offer.duration,
            ticks: None,
            written: offer.ready == offer.tokens,
            ended: None,
            answer: None,
            was_valid: false,
        }
    }

    /// Its owner's clock goes on.
    pub(crate) fn pass(&mut self, time: Duration) {
        if self.ended.is_none() {
            self.left = self.left.saturating_sub(time);
            if self.left.is_zero() {
                self.end(Ended::Lapsed);
            }
        }
    }

    pub(crate) fn end(&mut self, how: Ended) {
        if self.ended.is_none() {
            (self.ended, self.left, self.ticks) = (Some(how), Duration::ZERO, None);
        }
    }

    /// Its reader renews it; whether the reader should be told that it is over.
    pub(crate) fn renewed(&mut self, ticks: u64) -> bool {
        if self.ended.is_none() && self.ticks.is_none_or(|last| ticks > last) {
            (self.ticks, self.left) = (Some(ticks), self.duration);
        }
        self.ended.is_some() && self.answer != Some(true)
    }

    /// What a release must be answered.
    pub(crate) fn released(&mut self) -> bool {
        let valid = match self.answer {
            Some(before) => before,
            None => self.ended.is_none() && self.written,
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
}
