//! What routers are told: which identities are here, and how fast the place is that they are in.
//!
//! Of the tiers only those count that are this worker's alone: what others have in memory of the host or in a
//! store is found from everywhere.

use super::{KvManager, at};
use crate::index::PrefixIndex;
use crate::pool::Pool;
use crate::tiers::{Tier, TierSlots};
use domain::{BlockHash, BlockLink, ByIdentity, GroupId};
use std::collections::{BTreeMap, HashSet};

/// Identities that came or went in one tier and that a call of [`KvManager::take_index_changes`] returns, and as many
/// of those that are repeated. More follow with the next calls.
const TIER_CHANGES_PER_CALL_MAX: usize = 16_384;
/// Identities in tiers that are repeated for a router that knows none. Those used longest ago beyond it are not.
const TIER_REPEATS_MAX: usize = 1 << 20;

/// Blocks whose place changed, each in one of the lists. In the first three, a block comes after the one that it
/// continues, if both are in the list. It comes right after it if possible, so that a list is a few long chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexChanges {
    /// They are on the device now.
    pub device: Vec<BlockLink>,
    /// They are not on the device, but in the host tier.
    pub host: Vec<BlockLink>,
    /// They are not on the device, and a part of each is on disk alone.
    pub disk: Vec<BlockLink>,
    /// They are in none of these places any more. Sorted.
    pub gone: Vec<BlockHash>,
}

impl IndexChanges {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// Where an identity is, the fastest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Storage {
    Device,
    Host,
    Disk,
}

/// The tiers that are a worker's alone.
const OWN: [(Tier, Storage); 2] = [(Tier::Host, Storage::Host), (Tier::Disk, Storage::Disk)];

impl KvManager {
    /// Takes the identities whose place changed since the last call. An identity is in a place if every full group has
    /// it there or in a faster one; if all groups have windows, every group must have it. What a
    /// [closed](Self::close_tier) tier holds is not there. Closing changes nothing by itself: after it, everything is
    /// to be [told again](Self::tell_tiers_again).
    pub fn take_index_changes(&mut self) -> IndexChanges {
        // Of each, whether it was on the device.
        let mut changed: BTreeMap<BlockHash, bool> =
            self.index.take_changes().into_iter().map(|change| (change.hash, change.was_held)).collect();
        let index = &self.index;
        for (tier, tier_slots) in &mut self.tiers {
            let own = OWN.iter().any(|(own, _)| own == tier);
            for hash in
                tier_slots.take_changed(if own { TIER_CHANGES_PER_CALL_MAX } else { usize::MAX }).filter(|_| own)
            {
                changed.entry(hash).or_insert_with(|| index.held(&hash));
            }
        }
        let again = self.tier_repeats.len().saturating_sub(TIER_CHANGES_PER_CALL_MAX);
        for hash in self.tier_repeats.split_off(again) {
            changed.entry(hash).or_insert_with(|| index.held(&hash));
        }
        let mut changes = IndexChanges::default();
        for (hash, was_on_device) in changed {
            match self.storage(hash) {
                Some(Storage::Device) if was_on_device => {}
                Some(Storage::Device) => changes.device.push(self.link(hash)),
                Some(Storage::Host) => changes.host.push(self.link(hash)),
                Some(Storage::Disk) => changes.disk.push(self.link(hash)),
                None => changes.gone.push(hash),
            }
        }
        let IndexChanges { device, host, disk, gone } = changes;
        IndexChanges { device: in_chains(device), host: in_chains(host), disk: in_chains(disk), gone }
    }

    /// Returns all blocks that are on the device now, for a snapshot, in the order of [`IndexChanges::device`].
    pub fn indexed(&self) -> Vec<BlockLink> {
        in_chains(self.index.all_held().map(|hash| self.link(hash)).collect())
    }

    /// Reports what lies in tiers once more with the next changes, because a router knows nothing of it. What was used
    /// last comes first.
    pub fn tell_tiers_again(&mut self) {
        let open = OWN.iter().filter_map(|(tier, _)| self.tiers.get(tier)).filter(|tier_slots| tier_slots.is_open());
        let held =
            open.flat_map(|tier_slots| self.index.counting().flat_map(move |group| tier_slots.newest_first(group)));
        self.tier_repeats = held.take(TIER_REPEATS_MAX).collect();
        self.tier_repeats.reverse();
    }

    /// Returns about how many bytes are needed to know what the device holds and what goes first, and what is still to
    /// be reported again of tiers.
    pub fn index_bytes(&self) -> u64 {
        (self.pool_bytes() + self.index.bytes() + size_of_val(&self.tier_repeats[..])) as u64
    }

    /// Returns the most bytes that this can become.
    pub fn index_bytes_max(&self) -> u64 {
        let blocks: usize = self.pools.iter().map(|pool| pool.total() as usize).sum();
        let own = OWN.iter().filter_map(|(tier, _)| self.tiers.get(tier));
        let in_tiers: usize = own.map(|tier_slots| tier_slots.stats().total as usize).sum();
        (self.pool_bytes() + PrefixIndex::bytes_max(blocks) + size_of::<BlockHash>() * in_tiers.min(TIER_REPEATS_MAX))
            as u64
    }

    fn pool_bytes(&self) -> usize {
        self.pools.iter().map(Pool::bytes).sum()
    }

    /// Returns the identity with the block that it continues, if a place that has it knows that block.
    fn link(&self, hash: BlockHash) -> BlockLink {
        let parent = self.index.counting().find_map(|group| match self.index.get(group, hash) {
            Some(block) => self.pools[at(group)].parent(block),
            None => OWN.iter().find_map(|(tier, _)| self.tiers.get(tier)?.parent(group, hash)),
        });
        BlockLink { parent, hash }
    }

    /// Returns the slowest of the places where the groups that count have the identity; `None`: one has it nowhere.
    fn storage(&self, hash: BlockHash) -> Option<Storage> {
        self.index
            .counting()
            .try_fold(Storage::Device, |slowest, group| Some(slowest.max(self.storage_in(group, hash)?)))
    }

    /// Returns the fastest place where the group has the identity.
    fn storage_in(&self, group: GroupId, hash: BlockHash) -> Option<Storage> {
        if self.index.get(group, hash).is_some() {
            return Some(Storage::Device);
        }
        let holds = |tier_slots: &TierSlots| tier_slots.holds(group, hash);
        OWN.iter().find(|(tier, _)| self.tiers.get(tier).is_some_and(holds)).map(|&(_, storage)| storage)
    }
}

/// Puts the blocks into an order in which each comes after the one that it continues, and right after it where it can.
fn in_chains(mut links: Vec<BlockLink>) -> Vec<BlockLink> {
    links.sort_unstable();
    let listed: HashSet<BlockHash, ByIdentity> = links.iter().map(|link| link.hash).collect();
    let continue_it = |parent: BlockHash| {
        let first = links.partition_point(|link| link.parent < Some(parent));
        links[first..].iter().take_while(move |link| link.parent == Some(parent)).copied()
    };
    let mut ordered = Vec::with_capacity(links.len());
    let mut next: Vec<BlockLink> = Vec::new();
    for head in links.iter().filter(|link| link.parent.is_none_or(|parent| !listed.contains(&parent))) {
        next.push(*head);
        while let Some(link) = next.pop() {
            ordered.push(link);
            next.extend(continue_it(link.hash));
        }
    }
    ordered
}
