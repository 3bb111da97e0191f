//! Quotas hold: who has as much of a place as its quota gives up its own before anybody else's, and nothing that
//! is within a quota goes while somebody has more than theirs to give up.
//!
//! Blocks of a device are compared between a worker's turns, in which several may go. What is not sure to have
//! been so all the time between is taken to be as it would have to be. Of a disk every write is seen.

use crate::event::WorkerIndex;
use crate::slot_ownership::SlotOwnership;
use crate::tenants::Meeting;
use crate::world::World;
use domain::{BlockId, BlockRef, Generation, GroupId, Tenant};
use kv_manager::tiers::Slot;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const NAME: &str = "quotas hold";

/// The blocks of a worker when it was looked at last, by group.
pub(crate) type Before = Vec<Pool>;

/// The blocks of a group.
pub(crate) struct Pool {
    blocks: Vec<Block>,
    /// Blocks that sequences took over from the cache.
    hits: u64,
    /// Blocks that quotas named.
    named: u64,
    /// Blocks that are given up before anything else, or after everything else, whosever they are.
    apart: u32,
    /// Blocks that left though nobody wanted their room.
    parked: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Block {
    generation: Generation,
    tenant: Option<Tenant>,
    /// It may be given up.
    idle: bool,
}

/// What is sure of a tenant, all the time between two turns.
#[derive(Clone, Copy, Default)]
struct Sure {
    /// It had so many blocks.
    has: u32,
    /// No more than these.
    at_most: u32,
    /// One of them could have been given up.
    spares: bool,
}

/// Holds what a worker did to blocks since it was looked at last against quotas. What happened between tenants.
pub(crate) fn check(world: &mut World, w: WorkerIndex) -> Result<BTreeSet<Meeting>, String> {
    let mut meetings = BTreeSet::new();
    let tenants = &world.scenario.tenants;
    let Some(alive) = &mut world.workers[w].alive else { return Ok(meetings) };
    let kv = &alive.machine.core().kv;
    let mut after = Vec::new();
    for ((group, &total), stats) in (0..).map(GroupId).zip(&world.scenario.blocks).zip(kv.stats()) {
        let Some(quota) = tenants.quota(total, tenants.quotas.device_percent) else { return Ok(meetings) };
        let block = |block| {
            let block = BlockRef { group, block };
            Block { generation: kv.generation(block), tenant: kv.tenant(block), idle: kv.is_evictable(block) }
        };
        let blocks = (0..total).map(BlockId).map(block).collect();
        let pool = Pool {
            blocks,
            hits: stats.hits,
            named: stats.quota_evictions,
            apart: stats.cold + stats.pinned,
            parked: stats.parked,
        };
        if let Some(before) = alive.before.get(usize::from(group.0)) {
            let found = compare(before, &pool, quota).map_err(|what| format!("{group}, quota {quota}: {what}"))?;
            meetings.extend(found);
        }
        after.push(pool);
    }
    alive.before = after;
    Ok(meetings)
}

fn compare(before: &Pool, after: &Pool, quota: u32) -> Result<Vec<Meeting>, String> {
    if before.apart + after.apart > 0 || before.parked != after.parked {
        return Ok(Vec::new());
    }
    let pairs = || before.blocks.iter().zip(&after.blocks);
    let mut sure = BTreeMap::<Tenant, Sure>::new();
    // Uses that began and ended between the two, of who knows whom.
    let mut unseen = 0;
    for (old, new) in pairs() {
        let uses = (new.generation.0 - old.generation.0) as u32;
        unseen += uses - uses.min(u32::from(new.tenant.is_some()));
        old.tenant.into_iter().for_each(|tenant| sure.entry(tenant).or_default().at_most += 1);
        let Some(tenant) = new.tenant else { continue };
        let of = sure.entry(tenant).or_default();
        if uses == 0 {
            of.has += 1;
            // What was used and left between the two was a hit.
            of.spares |= old.idle && new.idle && before.hits == after.hits;
        } else {
            of.at_most += 1;
        }
    }
    let mut meetings = Vec::new();
    for (number, (old, new)) in pairs().enumerate() {
        let (Some(loser), Some(taker)) = (old.tenant, new.tenant) else { continue };
        // Twice between the two: it is not seen for whom it went.
        if !old.idle || new.generation.0 != old.generation.0 + 1 {
            continue;
        }
        let others_spare = |than: Tenant| sure.iter().any(|(&of, sure)| of != than && sure.spares);
        if loser == taker {
            if after.named > before.named && others_spare(taker) {
                meetings.push(Meeting::OwnGoesOnDevice);
            }
            continue;
        }
        let has_quota = sure[&taker].has >= quota && sure[&taker].spares;
        if has_quota {
            return Err(format!("{taker:?} takes block {number} of {loser:?}, and has its quota and some to spare"));
        }
        let within = sure[&loser].at_most + unseen <= quota;
        let over = sure.iter().find(|&(&of, sure)| of != taker && sure.has > quota && sure.spares);
        if let (true, Some((over, _))) = (within, over) {
            return Err(format!("{taker:?} takes block {number} of {loser:?}, and {over:?} has more than its quota"));
        }
        if after.named > before.named {
            meetings.push(Meeting::OverGoesOnDevice);
        }
    }
    Ok(meetings)
}

/// A write of a tenant's takes a slot of a group of so many. What happened between tenants.
pub(crate) fn written(
    stock: &SlotOwnership,
    slot: Slot,
    tenant: Tenant,
    slots: u32,
    quota: u32,
) -> Result<Option<Meeting>, String> {
    let Some((loser, idle)) = stock.of(slot) else { return Ok(None) };
    let shares = stock.shares(slot.group);
    let taken: u32 = shares.values().map(|&(has, _)| has).sum();
    if !idle || taken < slots {
        return Err(format!("{slot:?} goes, which is idle: {idle}, and {taken} of {slots} slots are taken"));
    }
    let (has, spares) = shares.get(&tenant).copied().unwrap_or_default();
    let is_full = has >= quota && shares.keys().any(|&other| other != tenant);
    let others_spare = shares.iter().any(|(&of, &(_, spares))| of != tenant && spares);
    let is_over = |of: Tenant| of != tenant && shares[&of].0 > quota && shares[&of].1;
    let somebody_is_over = shares.keys().any(|&of| is_over(of));
    let right = if is_full { loser == tenant } else { !somebody_is_over || is_over(loser) };
    if !right {
        return Err(format!("{tenant:?} ({has}, to spare: {spares}) takes {slot:?} of {loser:?}: {shares:?}"));
    }
    Ok(match is_full {
        true if others_spare => Some(Meeting::OwnGoesOnDisk),
        false if somebody_is_over => Some(Meeting::OverGoesOnDisk),
        _ => None,
    })
}
