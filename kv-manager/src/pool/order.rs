//! The blocks of a pool that may be given up: in which order they go, and for how long each was not used.
//!
//! Those that are cold go first, in the order in which they became so, and then the others as the eviction policy
//! says; unless a tenant's quota names another one. Which blocks may be given up the pool knows.

use super::Quota;
use crate::eviction::{Eviction, Queue};
use crate::tenants::Tenants;
use domain::{BlockHash, BlockId, Tenant, Time};

/// How a block stands.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// It may be given up.
    inside: bool,
    /// It is in a lower tier, or is to be written there. Until it is used again it goes before what the policy has.
    cold: bool,
    /// It leaves as soon as the tier that it is parked in has it, unless it is used before.
    parks: bool,
    /// Since when it may be given up.
    since: Time,
}

/// How a block stands that nothing is known of.
const NEW: Standing = Standing { inside: false, cold: false, parks: false, since: Time::ZERO };

/// The order.
#[derive(Clone)]
pub(super) struct Order {
    standings: Vec<Standing>,
    /// Blocks that may be given up and are not cold.
    policy: Box<dyn Eviction>,
    /// Cold blocks that may be given up.
    cold: Queue,
    /// Cold blocks, those among them that may not be given up.
    cold_blocks: u32,
    /// Blocks that may be given up and are not on their way to be parked, the one that may be for longest at the
    /// old end.
    idle: Queue,
    /// Whose all blocks are that are not free.
    tenants: Tenants,
    now: Time,
}

impl Order {
    /// Makes the order of a pool of `blocks` free blocks, of which each tenant has this quota.
    pub(super) fn new(blocks: u32, policy: Box<dyn Eviction>, quota: Quota) -> Self {
        Self {
            standings: vec![NEW; blocks as usize],
            policy,
            cold: Queue::new(blocks),
            cold_blocks: 0,
            idle: Queue::new(blocks),
            tenants: Tenants::new(blocks, quota.percent, quota.high_percent),
            now: Time::ZERO,
        }
    }

    /// Notes that the time is `now`.
    pub(super) fn pass(&mut self, now: Time) {
        self.now = now;
    }

    /// Returns the number of blocks that may be given up.
    pub(super) fn len(&self) -> u32 {
        self.policy.len() + self.cold.len()
    }

    /// Returns about how many bytes it takes at most for each block of the pool.
    pub(super) fn block_bytes(&self) -> usize {
        size_of::<Standing>() + self.policy.block_bytes() + 2 * Queue::SLOT_BYTES + Tenants::SLOT_BYTES
    }

    /// Returns whether the block may be given up.
    pub(super) fn contains(&self, id: BlockId) -> bool {
        self.standings[id.0 as usize].inside
    }

    /// Returns whether the block goes before what the policy has.
    pub(super) fn is_cold(&self, id: BlockId) -> bool {
        self.standings[id.0 as usize].cold
    }

    /// Returns the number of cold blocks, including those that may not be given up.
    pub(super) fn cold_blocks(&self) -> u32 {
        self.cold_blocks
    }

    /// Notes that the tenant takes the block, which is free.
    pub(super) fn take(&mut self, id: BlockId, tenant: Tenant) {
        self.tenants.take(id.0, tenant);
    }

    /// Notes that the block is free.
    pub(super) fn free(&mut self, id: BlockId) {
        self.tenants.free(id.0);
    }

    /// Returns the tenant of the block, if it is not free.
    pub(super) fn tenant(&self, id: BlockId) -> Option<Tenant> {
        self.tenants.of(id.0)
    }

    /// Returns the number of blocks that are not free.
    pub(super) fn taken(&self) -> u32 {
        self.tenants.taken()
    }

    /// Notes that the block, which holds the bytes of `hash` and continues `parent`, may be given up from now on.
    pub(super) fn enter(&mut self, id: BlockId, hash: BlockHash, parent: Option<BlockHash>) {
        let now = self.now;
        let standing = self.standing(id);
        (standing.inside, standing.since) = (true, now);
        let Standing { cold, parks, .. } = *standing;
        if cold {
            self.cold.push(id.0);
        } else {
            self.policy.insert(id, hash, parent);
        }
        if !parks {
            self.idle.push(id.0);
        }
        self.tenants.enter(id.0);
    }

    /// Notes that the block may not be given up, until it enters again.
    pub(super) fn exit(&mut self, id: BlockId) {
        let standing = self.standing(id);
        standing.inside = false;
        let Standing { cold, parks, .. } = *standing;
        if cold {
            self.cold.remove(id.0);
        } else {
            self.policy.remove(id);
        }
        if !parks {
            self.idle.remove(id.0);
        }
        self.tenants.exit(id.0);
    }

    /// Notes that the block is used. It is not cold any more. If it was, it may not be given up any more either.
    pub(super) fn warm(&mut self, id: BlockId) {
        let Standing { inside, cold: true, .. } = *self.standing(id) else { return };
        if inside {
            self.exit(id);
        }
        self.cold_blocks -= 1;
        self.tenants.warm(id.0);
        let standing = self.standing(id);
        (standing.cold, standing.parks) = (false, false);
    }

    /// Takes out the block that goes first, for good.
    pub(super) fn pop(&mut self) -> Option<BlockId> {
        let id = self.cold.pop().map(BlockId).or_else(|| self.policy.pop())?;
        self.forget(id);
        Some(id)
    }

    /// Takes out the block that a quota names when `tenant` needs one, for good: the one of its own that may be
    /// given up for longest, if it has its quota, or else that of another tenant that has more. `None`: no quota
    /// says which.
    pub(super) fn pop_by_quota(&mut self, tenant: Tenant) -> Option<BlockId> {
        let own = if self.tenants.is_full(tenant) { self.tenants.oldest(tenant) } else { None };
        let id = own.or_else(|| self.tenants.oldest_over(tenant)).map(BlockId)?;
        if self.is_cold(id) {
            self.cold.remove(id.0);
        } else {
            self.policy.forget(id);
        }
        self.forget(id);
        Some(id)
    }

    /// Makes the block cold that goes first of the others.
    pub(super) fn cool(&mut self) -> Option<BlockId> {
        let id = self.policy.pop()?;
        self.chill(id);
        Some(id)
    }

    /// Makes the block cold that goes first of a tenant that has more warm ones than its quota allows.
    pub(super) fn cool_by_quota(&mut self) -> Option<BlockId> {
        let id = self.tenants.oldest_warm().map(BlockId)?;
        self.policy.forget(id);
        self.chill(id);
        Some(id)
    }

    /// Returns the block that may be given up for longest and is not parked, and since when.
    pub(super) fn longest_idle(&self) -> Option<(BlockId, Time)> {
        self.idle.oldest().map(|id| (BlockId(id), self.standings[id as usize].since))
    }

    /// Notes that the block, which may be given up, is to be parked.
    pub(super) fn park(&mut self, id: BlockId) {
        if !self.standing(id).cold {
            self.policy.forget(id);
            self.chill(id);
        }
        if !std::mem::replace(&mut self.standing(id).parks, true) {
            self.idle.remove(id.0);
        }
    }

    /// Returns whether the block is to be parked and may be given up.
    pub(super) fn may_depart(&self, id: BlockId) -> bool {
        let standing = self.standings[id.0 as usize];
        standing.parks && standing.inside
    }

    /// Takes out a block that [may depart](Self::may_depart), for good.
    pub(super) fn depart(&mut self, id: BlockId) {
        assert!(self.may_depart(id), "{id} stays");
        self.cold.remove(id.0);
        self.forget(id);
    }

    /// Asserts that the queues and the accounts of tenants have what the standings say.
    pub(super) fn check(&self) {
        let mut cold_blocks = 0;
        for (number, &Standing { inside, cold, parks, .. }) in (0..).zip(&self.standings) {
            assert!(cold || !parks, "block {number} is parked and warm");
            assert_eq!(self.cold.contains(number), cold && inside, "block {number} and the cold ones");
            assert_eq!(self.idle.contains(number), inside && !parks, "block {number} and the idle ones");
            cold_blocks += u32::from(cold);
        }
        assert_eq!(cold_blocks, self.cold_blocks, "cold blocks");
        self.tenants.check(|slot| self.standings[slot as usize].inside);
        assert_eq!(self.standings.iter().filter(|standing| standing.inside).count(), self.len() as usize);
    }

    fn chill(&mut self, id: BlockId) {
        self.cold.push(id.0);
        self.cold_blocks += 1;
        self.tenants.chill(id.0);
        self.standing(id).cold = true;
    }

    /// Forgets the block, which neither the policy nor the cold ones have.
    fn forget(&mut self, id: BlockId) {
        let Standing { cold, parks, .. } = std::mem::replace(self.standing(id), NEW);
        self.cold_blocks -= u32::from(cold);
        if !parks {
            self.idle.remove(id.0);
        }
        self.tenants.exit(id.0);
    }

    fn standing(&mut self, id: BlockId) -> &mut Standing {
        &mut self.standings[id.0 as usize]
    }
}
