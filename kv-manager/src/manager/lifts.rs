//! The manager's side of lifts: what a prompt that waits for room will need of slower tiers goes to the host tier
//! meanwhile, from where it comes sooner. No block of the device has to do with it.

use super::KvManager;
use crate::tiers::{Place, ReadEnd, Tier, TierLift, TierSlots};
use domain::{BlockHash, BlockLink, GroupId, Tenant};

/// The tiers that records are lifted from. What neighbours have lies in memory already, and is read as fast from there.
const LIFTED_FROM: [Tier; 2] = [Tier::Disk, Tier::Object];

impl KvManager {
    /// Returns what could be lifted for a prompt that will [`load`](Self::load) the first `tokens` positions of
    /// `chain`, and where each record is. What the host tier has of them already counts as used, so that it is not
    /// given up for what is lifted.
    pub fn liftable(&mut self, chain: &[BlockHash], tokens: u32) -> Vec<(Tier, GroupId, BlockHash)> {
        let mut records = self.sources(chain, tokens);
        let Some(host) = self.tiers.get_mut(&Tier::Host) else { return Vec::new() };
        for &(tier, group, hash) in &records {
            if tier == Tier::Host {
                host.keep(group, hash);
            }
        }
        records.retain(|(tier, ..)| LIFTED_FROM.contains(tier));
        records
    }

    /// Returns whether one more record of the group may be lifted: what was lifted and not read is bounded.
    pub fn may_lift(&self, group: GroupId) -> bool {
        self.tiers.get(&Tier::Host).is_some_and(|host| host.may_lift(group))
    }

    /// Begins to lift a record of a tenant's from a tier. It ends with [`lifted`](Self::lifted), and if that was good
    /// with [`landed`](Self::landed). `None`: it is not there any more, or it is in the host tier or on its way, or
    /// there is no room for it.
    pub fn lift(&mut self, from: Tier, group: GroupId, hash: BlockHash, tenant: Tenant) -> Option<TierLift> {
        let source = self.tiers.get_mut(&from)?;
        let link = BlockLink { parent: source.parent(group, hash), hash };
        let below = source.begin_read(group, hash, tenant)?;
        let host = self.tiers.get_mut(&Tier::Host);
        match host.and_then(|host| host.begin_lift(group, link, tenant)) {
            Some(slot) => {
                let (from, to) = (Place { tier: from, slot: below }, Place { tier: Tier::Host, slot });
                Some(TierLift { from, to, hash })
            }
            None => {
                self.tier_slots(from).end_read(below, ReadEnd::Unread);
                None
            }
        }
    }

    /// Ends the read of a lift: the record was read from its tier, or it was not and its slot in the host tier is
    /// free. Panics if none was under way.
    pub fn lifted(&mut self, lift: &TierLift, end: ReadEnd) {
        self.tier_slots(lift.from.tier).end_read(lift.from.slot, end);
        if end != ReadEnd::Good {
            self.landed(lift, false);
        }
    }

    /// Ends the write of a lift: the record is in its slot of the host tier, or it will not be and the slot is free.
    /// Panics if none was under way.
    pub fn landed(&mut self, lift: &TierLift, there: bool) {
        self.tier_slots(lift.to.tier).end_lift(lift.to.slot, there);
    }

    /// Forgets what was lifted of `chain` for a prompt that does not need it any more.
    pub fn forget_lifts(&mut self, chain: &[BlockHash]) {
        let groups = self.groups();
        let Some(host) = self.tiers.get_mut(&Tier::Host) else { return };
        groups.for_each(|group| chain.iter().for_each(|&hash| host.forget_lift(group, hash)));
    }

    fn tier_slots(&mut self, tier: Tier) -> &mut TierSlots {
        self.tiers.get_mut(&tier).expect("a lift is between tiers that are there")
    }
}
