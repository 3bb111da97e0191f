//! Parking: blocks that were not used for long leave the device for the lowest tier of this host. They come back like
//! all that lies there, when a prompt wants them again.
//!
//! It goes by blocks and not by conversations: what an idle conversation shares with one that goes on is used, and
//! stays.

use super::{KvManager, at};
use crate::tiers::Tier;
use domain::{BlockHash, BlockId, BlockRef, GroupId, Time};

impl KvManager {
    /// Does what time alone brings about: pins that have lapsed end, and blocks that were not used for too long are
    /// parked, as many as may wait to be written.
    pub fn tick(&mut self, now: Time) {
        self.pools.iter_mut().for_each(|pool| pool.pass(now));
        self.expire_pins(now);
        let (Some(after), Some(tier)) = (self.config.park_after, self.parking_tier()) else { return };
        for group in self.groups() {
            while let Some((block, since)) = self.pools[at(group)].longest_idle() {
                if now < since + after || !self.park_block(tier, group, block) {
                    break;
                }
            }
        }
        self.assert_conserved();
    }

    /// Parks what the device has of `chain`, as far as no sequence uses it, and as many blocks as may wait to be
    /// written. Returns how many blocks left or will leave, unless a sequence uses them before.
    pub fn park(&mut self, chain: &[BlockHash]) -> u32 {
        let Some(tier) = self.parking_tier() else { return 0 };
        let mut parked = 0;
        for group in self.groups() {
            // The tail first, as when a sequence closes.
            for &hash in chain.iter().rev() {
                let block = self.index.get(group, hash).filter(|&block| self.pools[at(group)].is_idle(block));
                parked += u32::from(block.is_some_and(|block| self.park_block(tier, group, block)));
            }
        }
        self.assert_conserved();
        parked
    }

    /// Returns whether there is a tier to park in.
    pub fn can_park(&self) -> bool {
        self.parking_tier().is_some()
    }

    /// Returns the lowest tier of this host that is open.
    fn parking_tier(&self) -> Option<Tier> {
        [Tier::Disk, Tier::Host]
            .into_iter()
            .find(|tier| self.tiers.get(tier).is_some_and(|tier_slots| tier_slots.is_open()))
    }

    /// Parks a block that may be given up. `false`: too many wait to be written, and it stays.
    fn park_block(&mut self, tier: Tier, group: GroupId, block: BlockId) -> bool {
        let pool = &mut self.pools[at(group)];
        let (generation, hash) = (pool.generation(block), pool.hash(block));
        let tier_slots = self.tiers.get_mut(&tier).expect("the tier is there");
        if !tier_slots.holds(group, hash) && tier_slots.room() == 0 {
            return false;
        }
        pool.park(block);
        tier_slots.want(BlockRef { group, block }, generation, hash);
        self.depart(group, block);
        true
    }

    /// Lets a block leave that is to be parked, if the tier has it.
    pub(super) fn depart(&mut self, group: GroupId, block: BlockId) {
        let pool = &self.pools[at(group)];
        let lies = |tier: Tier| self.tiers[&tier].holds(group, pool.hash(block));
        if pool.may_depart(block) && self.parking_tier().is_some_and(lies) {
            self.pools[at(group)].depart(block, &mut self.index);
        }
    }
}
