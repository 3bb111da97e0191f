//! What a router that hears every report believes: at each of them, what is so.

use super::World;
use crate::manager::IndexChanges;
use crate::tiers::Tier;
use domain::{BlockHash, BlockLink, GroupId};
use std::collections::{BTreeMap, BTreeSet};

/// Where each identity is: 0 on the device, 1 in the host tier, 2 on disk.
pub(super) type Reported = BTreeMap<BlockHash, u8>;

impl World {
    /// A report.
    pub(super) fn hear(&mut self) {
        let IndexChanges { device, host, disk, gone } = self.kv.take_index_changes();
        for (place, links) in (0..).zip([device, host, disk]) {
            self.check_links(&links, place == 0);
            self.told.extend(links.into_iter().map(|link| (link.hash, place)));
        }
        self.told.retain(|hash, _| !gone.contains(hash));
    }

    /// A snapshot.
    pub(super) fn hear_all(&mut self) {
        self.hear();
        let links = self.kv.indexed();
        self.check_links(&links, true);
        self.told = links.into_iter().map(|link| (link.hash, 0)).collect();
        self.kv.tell_tiers_again();
    }

    /// Each block is listed once, after the one that it continues. Which one that is, is known of all that is on
    /// the device, and of the others it is not known or right.
    fn check_links(&self, links: &[BlockLink], on_device: bool) {
        for (number, link) in links.iter().enumerate() {
            let later: Vec<BlockHash> = links[number..].iter().map(|link| link.hash).collect();
            assert!(!later[1..].contains(&link.hash), "{link:?} is listed twice");
            assert!(
                link.parent.is_none_or(|parent| !later.contains(&parent)),
                "{link:?} comes before what it continues"
            );
            let parent = *self.parents.borrow().get(&link.hash).expect("a sequence had the block");
            assert!(link.parent == parent || !on_device && link.parent.is_none(), "{link:?} continues {parent:?}");
        }
    }

    pub(super) fn check_told(&self) {
        let windows: Vec<bool> = self.config.groups.iter().map(|group| group.window.is_some()).collect();
        let counts = |group: &usize| !windows[*group] || windows.iter().all(|&window| window);
        let groups: Vec<GroupId> = (0..windows.len()).filter(counts).map(|group| GroupId(group as u16)).collect();
        let own: Vec<_> = [Tier::Host, Tier::Disk].iter().map(|tier| self.kv.tiers.get(tier)).collect();
        let place = |hash: BlockHash| {
            let places = groups.iter().map(|&group| {
                let in_tier = |number: usize| own[number].is_some_and(|tier_slots| tier_slots.holds(group, hash));
                match (self.kv.index.get(group, hash), in_tier(0), in_tier(1)) {
                    (Some(_), ..) => 0,
                    (None, true, _) => 1,
                    (None, false, true) => 2,
                    (None, false, false) => 3,
                }
            });
            places.max().filter(|&place| place < 3)
        };
        let on_device = self.kv.sealed().map(|(.., hash)| hash);
        let below = own
            .iter()
            .flatten()
            .flat_map(|tier_slots| groups.iter().flat_map(move |&group| tier_slots.newest_first(group)));
        let all: BTreeSet<BlockHash> = on_device.chain(below).collect();
        let is: Reported = all.into_iter().filter_map(|hash| Some((hash, place(hash)?))).collect();
        assert_eq!(self.told, is);
    }
}
