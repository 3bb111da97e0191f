//! Leases as the world sees them, from the messages alone: what an owner's answers are held against.
//!
//! Times are kept twice where the world cannot know them exactly: `surely` errs on the side of a lease that is
//! over, and `perhaps` on that of one that lives.

use crate::event::{Life, WorkerIndex};
use domain::handoff::Offer;
use domain::{BlockRef, Epoch, Generation, GroupId, LeaseId, RequestId, Time, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A worker's loop wakes at least so often by itself.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// A lease of a life of an owner.
pub(crate) type LeaseKey = (WorkerIndex, Life, LeaseId);

/// Until when a lease lives.
#[derive(Clone, Copy, Debug)]
struct Span {
    expiry: Time,
    until: Time,
    ticks: Option<u64>,
}

impl Span {
    fn new(now: Time, duration: Duration, until: Time) -> Self {
        Self { expiry: (now + duration).min(until), until, ticks: None }
    }

    /// Time stood still for it since then.
    fn prolong(&mut self, since: Time, pause: Duration) {
        if since < self.expiry {
            *self = Self { expiry: self.expiry + pause, until: self.until + pause, ..*self };
        }
    }

    fn renew(&mut self, now: Time, duration: Duration, ticks: u64) {
        if now < self.expiry && self.ticks.is_none_or(|last| ticks > last) {
            *self = Self { expiry: (now + duration).min(self.until), ticks: Some(ticks), ..*self };
        }
    }
}

/// A lease.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) reader: WorkerId,
    pub(crate) reader_life: Life,
    pub(crate) request: RequestId,
    pub(crate) epoch: Epoch,
    pub(crate) tokens: u32,
    /// The blocks with their numbers in the sequence.
    pub(crate) blocks: Vec<(BlockRef, Generation, u32)>,
    duration: Duration,
    surely: Span,
    perhaps: Span,
    /// The owner said that all is computed.
    pub(crate) complete: bool,
    /// It was released or withdrawn.
    pub(crate) over: bool,
    /// What its release was answered first.
    pub(crate) answer: Option<bool>,
}

impl Lease {
    pub(crate) fn lives_surely(&self, now: Time) -> bool {
        !self.over && now < self.surely.expiry
    }

    pub(crate) fn lives_perhaps(&self, now: Time) -> bool {
        !self.over && now < self.perhaps.expiry
    }
}

/// All leases of a world.
#[derive(Default)]
pub(crate) struct Leases(BTreeMap<LeaseKey, Lease>);

impl Leases {
    /// An owner offers. `latest`: when the lease ends, however often it is renewed. `deadline`: of the attempt,
    /// where it is known still.
    pub(crate) fn offered(
        &mut self,
        now: Time,
        owner: (WorkerIndex, Life),
        reader: (WorkerId, Life),
        offer: &Offer,
        latest: Time,
        deadline: Option<Time>,
    ) {
        let blocks = offer.groups.iter().zip(0..).flat_map(|(group, id)| {
            let numbered = group.blocks.iter().zip(group.first..);
            numbered
                .map(move |(&(block, generation), number)| (BlockRef { group: GroupId(id), block }, generation, number))
        });
        let lease = Lease {
            reader: reader.0,
            reader_life: reader.1,
            request: offer.request,
            epoch: offer.epoch,
            tokens: offer.tokens,
            blocks: blocks.collect(),
            duration: offer.duration,
            surely: Span::new(now, offer.duration, deadline.map_or(now, |deadline| deadline.min(latest))),
            perhaps: Span::new(now, offer.duration, latest),
            complete: offer.ready == offer.tokens,
            over: false,
            answer: None,
        };
        self.0.insert((owner.0, owner.1, offer.lease), lease);
    }

    /// An owner's loop has a turn, the first one since then. What is beyond its tick takes nothing from its leases.
    pub(crate) fn turns(&mut self, now: Time, owner: (WorkerIndex, Life), since: Time) {
        let pause = now.since(since).saturating_sub(TICK);
        if pause.is_zero() {
            return;
        }
        let range = (owner.0, owner.1, LeaseId(0))..=(owner.0, owner.1, LeaseId(u64::MAX));
        for (_, lease) in self.0.range_mut(range) {
            lease.perhaps.prolong(since, pause);
            lease.surely.prolong(since, pause);
        }
    }

    /// An owner handles a renewal. `current`: it names the present lives.
    pub(crate) fn renewed(&mut self, now: Time, key: LeaseKey, from: WorkerId, ticks: u64, current: bool) {
        if let Some(lease) = self.0.get_mut(&key).filter(|lease| lease.reader == from) {
            lease.perhaps.renew(now, lease.duration, ticks);
            if current {
                lease.surely.renew(now, lease.duration, ticks);
            }
        }
    }

    /// An owner withdraws.
    pub(crate) fn withdrawn(&mut self, key: LeaseKey) {
        self.0.get_mut(&key).into_iter().for_each(|lease| lease.over = true);
    }

    pub(crate) fn get(&self, key: LeaseKey) -> Option<&Lease> {
        self.0.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: LeaseKey) -> Option<&mut Lease> {
        self.0.get_mut(&key)
    }

    /// Those of a life of an owner.
    pub(crate) fn of(&self, owner: WorkerIndex, life: Life) -> impl Iterator<Item = (LeaseId, &Lease)> {
        let range = (owner, life, LeaseId(0))..=(owner, life, LeaseId(u64::MAX));
        self.0.range(range).map(|(&(_, _, id), lease)| (id, lease))
    }
}
