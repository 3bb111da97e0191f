//! Lifts in the world that remembers.

use super::super::{TENANT, World};
use super::{Spot, spot};
use crate::tiers::{Place, ReadEnd, Tier, TierLift};
use domain::BlockHash;

impl World {
    /// A prompt with this chain waits for room: the next record that could be lifted for it is.
    pub(super) fn lift(&mut self, chain: &[BlockHash]) {
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        let records = self.kv.liftable(chain, loadable);
        let Some(lift) = records.into_iter().find_map(|(tier, group, hash)| self.kv.lift(tier, group, hash, TENANT))
        else {
            return;
        };
        let reads = self.below.loads.iter().flat_map(|load| &load.reads).map(|read| read.place);
        let froms = self.below.lifts.iter().map(|lift| lift.from);
        assert!(reads.chain(froms).all(|place| place != lift.to), "{:?} is lifted to while it is read", lift.to);
        let writes = self.below.writes.iter().map(|(write, _)| (write.place, write.block.group, write.hash));
        let (group, tier) = (lift.to.slot.group, lift.to.tier);
        let mut doubled = writes.filter(|&(place, of, hash)| place.tier == tier && (of, hash) == (group, lift.hash));
        assert_eq!(doubled.next(), None, "{lift:?} is being written already");
        assert!(self.below.writes.iter().all(|(write, _)| write.place != lift.to), "{:?} is written", lift.to);
        self.expect_not_lifted(lift.to, lift.hash);
        assert_eq!((tier, lift.from.slot.group), (Tier::Host, group));
        self.overwrite(spot(lift.to, lift.hash));
        self.below.lifts.push_back(lift);
    }

    pub(super) fn lifted(&mut self, lost: Option<ReadEnd>) {
        let Some(lift) = self.below.lifts.pop_front() else { return };
        match self.below.bytes(lift.from, lift.hash, lost) {
            Ok(bytes) => {
                self.kv.lifted(&lift, ReadEnd::Good);
                self.below.landing.push_back((lift, bytes));
            }
            Err(end) => self.kv.lifted(&lift, end),
        }
    }

    pub(super) fn landed(&mut self, there: bool) {
        let Some((lift, bytes)) = self.below.landing.pop_front() else { return };
        self.kv.landed(&lift, there);
        if there {
            let spot = spot(lift.to, lift.hash);
            self.below.records.insert(spot, (lift.hash, bytes));
            self.below.flipped.remove(&spot);
            self.below.unread.insert(spot, lift.hash);
            self.below.lifted[0] += 1;
        }
    }

    pub(super) fn forget_lifts(&mut self, chain: &[BlockHash]) {
        self.kv.forget_lifts(chain);
        let before = self.below.unread.len();
        self.below.unread.retain(|_, hash| !chain.contains(hash));
        self.below.lifted[1] += (before - self.below.unread.len()) as u64;
    }

    /// Nothing is being lifted there, nor this record to anywhere in the tier.
    pub(super) fn expect_not_lifted(&self, place: Place, hash: BlockHash) {
        let mut lifts = self.below.lifts.iter().chain(self.below.landing.iter().map(|(lift, _)| lift));
        let same = |lift: &TierLift| {
            let record = |place: Place, hash| (place.tier, place.slot.group, hash);
            lift.to == place || record(lift.to, lift.hash) == record(place, hash)
        };
        assert!(!lifts.any(same), "{hash:?} goes to {place:?}, and is lifted or another is lifted there");
    }

    /// From now on the spot holds who knows what.
    pub(super) fn overwrite(&mut self, spot: Spot) {
        self.below.records.remove(&spot);
        self.below.lifted[1] += u64::from(self.below.unread.remove(&spot).is_some());
    }

    /// Lifts are counted as they were.
    pub(in crate::manager::tests::model) fn check_lifts(&self) {
        let host = self.kv.tier_stats().find(|(tier, _)| *tier == Tier::Host);
        let counted = host.map_or([0; 2], |(_, stats)| [stats.lifted, stats.lifted_in_vain]);
        assert_eq!(counted, self.below.lifted, "what was lifted, and in vain");
    }
}
