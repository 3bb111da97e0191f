//! Records of slower tiers that are lifted here, from no block of the device, for prompts that wait for room.
//!
//! Records that are being lifted, or that were lifted and are not read yet, take no more than a share of the slots. So
//! prompts that wait do not push out what running ones use. A record that was read, or that its prompt does not need
//! any more, is like any other.

use super::{BlockHash, BlockLink, Entry, GroupId, GroupSlots, Slot, State, Tenant, TierSlots, at};
use domain::planted_bugs::{self, Bug};

/// The share of a group's slots that lifts may take, in percent.
const LIFTED_PERCENT: u64 = 25;

/// What is lifted to the slots of a group.
#[derive(Clone)]
pub(super) struct Lifts {
    max: u32,
    under_way: Vec<BlockHash>,
    /// Slots that were lifted and not read.
    unread: u32,
    landed: u64,
    in_vain: u64,
}

impl Lifts {
    pub(super) fn new(slots: u32) -> Self {
        let max = (u64::from(slots) * LIFTED_PERCENT / 100) as u32;
        Self { max, under_way: Vec::new(), unread: 0, landed: 0, in_vain: 0 }
    }

    fn taken(&self) -> u32 {
        self.under_way.len() as u32 + self.unread
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn landed(&self) -> u64 {
        self.landed
    }

    pub(super) fn in_vain(&self) -> u64 {
        self.in_vain
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.taken() <= self.max
    }

    /// Asserts that so many slots are being lifted to, and so many were and are not read.
    pub(super) fn check(&self, under_way: usize, unread: u32) {
        assert_eq!((self.under_way.len(), self.unread), (under_way, unread), "slots that are lifted to");
    }
}

impl TierSlots {
    /// Returns whether one more record of the group may be lifted, by the share of lifted records that were not read
    /// yet.
    pub(crate) fn may_lift(&self, group: GroupId) -> bool {
        let lifts = &self.groups[at(group)].lifts;
        !self.closed && lifts.taken() < lifts.max
    }

    /// Begins to lift the record of a block for this tenant. Returns its slot. `None`: it is here or on its way, or no
    /// slot can be had for it.
    pub(crate) fn begin_lift(&mut self, group: GroupId, link: BlockLink, tenant: Tenant) -> Option<Slot> {
        let BlockLink { parent, hash } = link;
        if !self.may_lift(group) || self.holds(group, hash) || self.is_coming(group, hash) {
            return None;
        }
        let group_slots = &mut self.groups[at(group)];
        let slot = group_slots.take(tenant, &mut self.stats)?;
        group_slots.entries[slot as usize] = Entry { state: State::Lifting, hash, parent, ..Entry::FREE };
        group_slots.lifts.under_way.push(hash);
        self.assert_conserved();
        Some(Slot { group, slot })
    }

    /// Ends a lift. `there`: the record is in its slot, for its prompt to read. Panics if none was under way there.
    pub(crate) fn end_lift(&mut self, Slot { group, slot }: Slot, there: bool) {
        let group_slots = &mut self.groups[at(group)];
        let Entry { state: State::Lifting, hash, parent, .. } = group_slots.entries[slot as usize] else {
            panic!("nothing is lifted to {slot} of {group}");
        };
        group_slots.lifts.under_way.retain(|&lifted| lifted != hash);
        if there {
            group_slots.hold(slot, BlockLink { parent, hash });
            group_slots.entries[slot as usize].unread = true;
            group_slots.lifts.unread += 1;
            group_slots.lifts.landed += 1;
        } else {
            group_slots.clear(slot);
        }
        self.assert_conserved();
    }

    /// Notes that the prompt for which the record was lifted, if it was, does not need it any more.
    pub(crate) fn forget_lift(&mut self, group: GroupId, hash: BlockHash) {
        let group_slots = &mut self.groups[at(group)];
        let Some(&slot) = group_slots.index.get(&hash) else { return };
        if planted_bugs::is(Bug::LiftFreedWhileRead) && group_slots.entries[slot as usize].readers > 0 {
            group_slots.index.remove(&hash);
            group_slots.clear(slot);
        }
        group_slots.drop_lift(slot);
    }

    /// Notes that the record, if it is here, will be read soon: it counts as used.
    pub(crate) fn keep(&mut self, group: GroupId, hash: BlockHash) {
        let group_slots = &mut self.groups[at(group)];
        if let Some(&slot) = group_slots.index.get(&hash) {
            group_slots.touch(slot);
        }
    }

    /// Returns whether the record is being written here, from a block or by a lift.
    pub(super) fn is_coming(&self, group: GroupId, hash: BlockHash) -> bool {
        let lifted = |group_slots: &GroupSlots| group_slots.lifts.under_way.contains(&hash);
        self.writing.contains(&(group, hash)) || self.groups.get(at(group)).is_some_and(lifted)
    }
}

impl GroupSlots {
    /// Notes that the slot is read: what was lifted to it was of use.
    pub(super) fn read_first(&mut self, slot: u32) {
        let unread = &mut self.entries[slot as usize].unread;
        self.lifts.unread -= u32::from(std::mem::take(unread));
    }

    /// Notes that what the slot holds was lifted in vain, if it was lifted and not read.
    pub(super) fn drop_lift(&mut self, slot: u32) {
        self.lifts.in_vain += u64::from(self.entries[slot as usize].unread);
        self.read_first(slot);
    }
}
