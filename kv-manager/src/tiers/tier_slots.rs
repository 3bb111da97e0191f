//! The slots of one tier, for each group.
//!
//! A slot is free, being written (from a block, or by a lift), or held; their sum is the tier, asserted at every
//! change. A tier may be closed for a while or for ever: then nothing is found in it and nothing is written, and moves
//! under way end as ever.

mod lifts;

use super::backlog::{Backlog, Wanted};
use super::recently_sealed::RecentlySealed;
use super::{ReadEnd, Slot, TierConfig, TierRecord, TierStats, WriteEnd, WritePolicy};
use crate::change_tracking_map::ChangeTrackingMap;
use crate::eviction::Queue;
use crate::tenants::Tenants;
use domain::{BlockHash, BlockLink, BlockRef, Generation, GroupId, Tenant};
use lifts::Lifts;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Writing(BlockRef),
    Lifting,
    Held,
}

#[derive(Clone, Debug)]
struct Entry {
    state: State,
    hash: BlockHash,
    /// The block that this one continues. `None`: none, or it is not known, as of what was written in an earlier
    /// life or by others.
    parent: Option<BlockHash>,
    /// Reads under way.
    readers: u32,
    /// It turned out wrong, or gone, while it is read: free when that ends.
    wrong: bool,
    /// It was lifted for a prompt, which has not read it.
    unread: bool,
}

impl Entry {
    const FREE: Self =
        Self { state: State::Free, hash: BlockHash([0; 16]), parent: None, readers: 0, wrong: false, unread: false };
}

/// The slots of one group.
#[derive(Clone)]
struct GroupSlots {
    entries: Vec<Entry>,
    free: Vec<u32>,
    index: ChangeTrackingMap<u32>,
    /// Held slots that are not being read. The one that was read or written last is at the end.
    order: Queue,
    /// Whose the slots are that are not free.
    tenants: Tenants,
    lifts: Lifts,
}

/// Identities that are remembered for each slot.
const SEEN_PER_SLOT: usize = 2;

/// What a slot takes here, whatever it holds: its entry, its place on the list of free ones, in the order of uses
/// and in the accounts of tenants.
const SLOT_BYTES: usize = size_of::<Entry>() + size_of::<u32>() + Queue::SLOT_BYTES + Tenants::SLOT_BYTES;
/// What an identity that was seen takes: in a set that is half full, and in the order.
const SEEN_BYTES: usize = 3 * size_of::<(GroupId, BlockHash)>();

/// One tier of one worker.
#[derive(Clone)]
pub(crate) struct TierSlots {
    config: TierConfig,
    groups: Vec<GroupSlots>,
    backlog: Backlog,
    seen: RecentlySealed,
    /// Records being written.
    writing: Vec<(GroupId, BlockHash)>,
    closed: bool,
    stats: TierStats,
}

impl TierSlots {
    /// Makes a tier that holds nothing, of which each tenant has this share as its quota.
    pub(crate) fn new(config: TierConfig, quota_percent: u32) -> Self {
        let group_slots = |&slots: &u32| GroupSlots {
            entries: vec![Entry::FREE; slots as usize],
            free: (0..slots).rev().collect(),
            index: ChangeTrackingMap::default(),
            order: Queue::new(slots),
            tenants: Tenants::new(slots, quota_percent, 100),
            lifts: Lifts::new(slots),
        };
        let groups = config.slots.iter().map(group_slots).collect();
        let slots: u32 = config.slots.iter().sum();
        Self {
            groups,
            backlog: Backlog::default(),
            seen: RecentlySealed::new(SEEN_PER_SLOT * slots as usize),
            writing: Vec::new(),
            closed: false,
            stats: TierStats::default(),
            config,
        }
    }

    /// Notes that a block was sealed.
    pub(crate) fn sealed(&mut self, block: BlockRef, generation: Generation, hash: BlockHash) {
        let wanted = match self.config.write {
            WritePolicy::Through => true,
            WritePolicy::SecondUse => !self.seen.first(block.group, hash),
            WritePolicy::Back | WritePolicy::Never => false,
        };
        if wanted {
            self.want(block, generation, hash);
        }
    }

    /// Notes that a sequence took a block over from the cache.
    pub(crate) fn hit(&mut self, block: BlockRef, generation: Generation, hash: BlockHash) {
        if self.config.write == WritePolicy::SecondUse {
            self.want(block, generation, hash);
        }
    }

    /// Returns whether blocks go here when the device is too full, and it is to be relied on.
    pub(crate) fn is_written_back(&self) -> bool {
        self.config.write == WritePolicy::Back && !self.closed
    }

    /// Returns whether a block that the device is too full for would wait here, if it should.
    pub(crate) fn takes_cold(&self) -> bool {
        !self.is_written_back() || self.room() > 0
    }

    /// Returns how many more blocks could wait here.
    pub(crate) fn room(&self) -> usize {
        self.config.backlog_max - self.backlog.len()
    }

    /// Returns whether anything is found here.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed
    }

    /// Notes that the device is too full for a block.
    pub(crate) fn cooled(&mut self, block: BlockRef, generation: Generation, hash: BlockHash) {
        if self.is_written_back() {
            self.want(block, generation, hash);
        }
    }

    /// Takes over the records that were written in an earlier life, the oldest first. Nothing was written in this one
    /// yet. Records whose slot does not exist are left out. Of records that name a slot or an identity twice, the last
    /// counts.
    pub(crate) fn recover(&mut self, records: &[TierRecord]) {
        for &TierRecord { slot: Slot { group, slot }, hash, tenant } in records.iter().rev() {
            let Some(group_slots) = self.groups.get_mut(at(group)) else { continue };
            let is_free = group_slots.entries.get(slot as usize).is_some_and(|entry| entry.state == State::Free);
            if is_free && !group_slots.index.contains_key(&hash) {
                group_slots.entries[slot as usize] = Entry { state: State::Held, hash, ..Entry::FREE };
                group_slots.index.insert(hash, slot);
                group_slots.tenants.take(slot, tenant);
            }
        }
        for &TierRecord { slot: Slot { group, slot }, hash, .. } in records {
            let Some(group_slots) = self.groups.get_mut(at(group)) else { continue };
            if group_slots.index.get(&hash) == Some(&slot) && !group_slots.order.contains(slot) {
                group_slots.rest(slot);
            }
        }
        for group_slots in &mut self.groups {
            let GroupSlots { free, entries, .. } = group_slots;
            free.retain(|&slot| entries[slot as usize].state == State::Free);
        }
        self.assert_conserved();
    }

    /// Notes that others wrote the record: it is held, if a slot is free. What is held already was of use here, and is
    /// not given up for what others may need.
    pub(crate) fn learn(&mut self, group: GroupId, hash: BlockHash) {
        if self.is_coming(group, hash) {
            return;
        }
        let Some(group_slots) = self.groups.get_mut(at(group)) else { return };
        if !group_slots.index.contains_key(&hash)
            && let Some(slot) = group_slots.free.pop()
        {
            group_slots.tenants.take(slot, Tenant::UNKNOWN);
            group_slots.hold(slot, BlockLink { parent: None, hash });
            self.assert_conserved();
        }
    }

    /// Notes that others wrote the record, and a prompt looks for it. It is held, in place of what was used longest
    /// ago if no slot is free.
    pub(crate) fn find(&mut self, group: GroupId, hash: BlockHash) {
        self.stats.found += 1;
        if self.is_coming(group, hash) {
            return;
        }
        let Some(group_slots) = self.groups.get_mut(at(group)) else { return };
        match group_slots.index.get(&hash).copied() {
            Some(slot) => group_slots.touch(slot),
            None => {
                let Some(slot) = group_slots.take(Tenant::UNKNOWN, &mut self.stats) else { return };
                group_slots.hold(slot, BlockLink { parent: None, hash });
            }
        }
        self.assert_conserved();
    }

    /// Notes that others gave up the record.
    pub(crate) fn forget(&mut self, group: GroupId, hash: BlockHash) {
        let Some(group_slots) = self.groups.get_mut(at(group)) else { return };
        let Some(slot) = group_slots.index.remove(&hash) else { return };
        let entry = &mut group_slots.entries[slot as usize];
        if entry.readers == 0 {
            group_slots.stir(slot);
            group_slots.clear(slot);
        } else {
            entry.wrong = true;
        }
        self.assert_conserved();
    }

    /// Closes the tier: nothing is found here from now on, and nothing is written.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.backlog.clear();
    }

    /// Opens the tier again.
    pub(crate) fn open(&mut self) {
        self.closed = false;
    }

    pub(crate) fn holds(&self, group: GroupId, hash: BlockHash) -> bool {
        !self.closed && self.groups[at(group)].index.contains_key(&hash)
    }

    /// Returns the block that the record continues, if it is held and that is known.
    pub(crate) fn parent(&self, group: GroupId, hash: BlockHash) -> Option<BlockHash> {
        let GroupSlots { entries, index, .. } = &self.groups[at(group)];
        entries[*index.get(&hash)? as usize].parent
    }

    /// Takes so many of the identities that came or went since they were taken last, at most.
    pub(crate) fn take_changed(&mut self, max: usize) -> impl Iterator<Item = BlockHash> {
        self.groups.iter_mut().flat_map(|group_slots| group_slots.index.take_changed(usize::MAX)).take(max)
    }

    /// Returns what is held of a group. What was used last comes first.
    pub(crate) fn newest_first(&self, group: GroupId) -> impl Iterator<Item = BlockHash> {
        let GroupSlots { entries, order, .. } = &self.groups[at(group)];
        let read = entries.iter().filter(|entry| entry.readers > 0 && !entry.wrong).map(|entry| entry.hash);
        read.chain(order.newest_first().map(move |slot| entries[slot as usize].hash))
    }

    /// Looks for the record, for a prompt. Returns whether it is here.
    pub(crate) fn count_lookup(&mut self, group: GroupId, hash: BlockHash) -> bool {
        let held = self.holds(group, hash);
        *(if held { &mut self.stats.hits } else { &mut self.stats.misses }) += 1;
        held
    }

    /// Returns whether what the block holds is neither here, nor being written, nor waits to be.
    pub(crate) fn lacks(&self, block: BlockRef, generation: Generation, hash: BlockHash) -> bool {
        let is_here = self.holds(block.group, hash) || self.is_coming(block.group, hash);
        !self.closed && !is_here && !self.backlog.contains(block, generation)
    }

    /// Notes that the block shall be written at some time, if it is [lacked](Self::lacks).
    pub(crate) fn want(&mut self, block: BlockRef, generation: Generation, hash: BlockHash) {
        if !self.lacks(block, generation, hash) {
            return;
        }
        if self.room() == 0 {
            self.stats.refused += 1;
            return;
        }
        self.backlog.push(Wanted { block, generation, hash });
    }

    /// Takes the next record to write, and its source, if another may be under way. `owner` names the tenant of a
    /// block that still holds what was wanted of it, and the block that it continues.
    pub(crate) fn next_write(
        &mut self,
        owner: impl Fn(BlockRef, Generation, BlockHash) -> Option<(Tenant, Option<BlockHash>)>,
    ) -> Option<(TierRecord, BlockRef)> {
        while self.writing.len() < self.config.writes_max {
            let Wanted { block, generation, hash } = self.backlog.pop()?;
            let known = self.groups[at(block.group)].index.contains_key(&hash) || self.is_coming(block.group, hash);
            if known {
                continue;
            }
            let Some((tenant, parent)) = owner(block, generation, hash) else {
                self.stats.late += 1;
                continue;
            };
            let group_slots = &mut self.groups[at(block.group)];
            let Some(slot) = group_slots.take(tenant, &mut self.stats) else { continue };
            group_slots.entries[slot as usize] = Entry { state: State::Writing(block), hash, parent, ..Entry::FREE };
            self.writing.push((block.group, hash));
            self.assert_conserved();
            return Some((TierRecord { slot: Slot { group: block.group, slot }, hash, tenant }, block));
        }
        None
    }

    /// Ends a write. Returns the block that was written.
    pub(crate) fn wrote(&mut self, slot: Slot, end: WriteEnd) -> BlockRef {
        let group_slots = &mut self.groups[at(slot.group)];
        let Entry { state: State::Writing(block), hash, parent, .. } = group_slots.entries[slot.slot as usize] else {
            panic!("{slot:?} is not being written");
        };
        self.writing.retain(|&writing| writing != (slot.group, hash));
        match end {
            WriteEnd::Failed => {
                group_slots.clear(slot.slot);
                self.stats.failed += 1;
            }
            WriteEnd::Written => {
                group_slots.hold(slot.slot, BlockLink { parent, hash });
                self.stats.written += 1;
            }
            WriteEnd::Existed => {
                group_slots.hold(slot.slot, BlockLink { parent, hash });
                self.stats.existed += 1;
            }
        }
        self.assert_conserved();
        block
    }

    /// Begins to read a record that is held, for this tenant. The record becomes its own, because no other tenant has
    /// that identity. Returns its slot.
    pub(crate) fn begin_read(&mut self, group: GroupId, hash: BlockHash, tenant: Tenant) -> Option<Slot> {
        if self.closed {
            return None;
        }
        let group_slots = &mut self.groups[at(group)];
        let slot = *group_slots.index.get(&hash)?;
        let entry = &mut group_slots.entries[slot as usize];
        entry.readers += 1;
        if entry.readers == 1 {
            group_slots.stir(slot);
            group_slots.tenants.claim(slot, tenant);
        }
        group_slots.read_first(slot);
        self.assert_conserved();
        Some(Slot { group, slot })
    }

    /// Ends a read. A record that is not what it should be, or is gone, or cannot be read, is given up.
    pub(crate) fn end_read(&mut self, slot: Slot, end: ReadEnd) {
        let group_slots = &mut self.groups[at(slot.group)];
        let entry = &mut group_slots.entries[slot.slot as usize];
        assert!(entry.readers > 0 && entry.state == State::Held, "{slot:?} is not read");
        entry.readers -= 1;
        match end {
            ReadEnd::Good => self.stats.read += 1,
            ReadEnd::Wrong | ReadEnd::Missing | ReadEnd::Failed if !entry.wrong => {
                *match end {
                    ReadEnd::Wrong => &mut self.stats.corrupt,
                    ReadEnd::Missing => &mut self.stats.missing,
                    _ => &mut self.stats.failed,
                } += 1;
                entry.wrong = true;
                // Nobody finds it any more.
                group_slots.index.remove(&entry.hash);
            }
            ReadEnd::Wrong | ReadEnd::Missing | ReadEnd::Failed => {}
            ReadEnd::Unread | ReadEnd::Abandoned => {}
        }
        if entry.readers == 0 {
            if entry.wrong {
                group_slots.clear(slot.slot);
            } else {
                group_slots.rest(slot.slot);
            }
        }
        self.assert_conserved();
    }

    /// Returns the blocks that are being written.
    pub(crate) fn written_from(&self) -> impl Iterator<Item = BlockRef> {
        let entries = self.groups.iter().flat_map(|group_slots| &group_slots.entries);
        entries.filter_map(|entry| if let State::Writing(block) = entry.state { Some(block) } else { None })
    }

    /// Returns the counts.
    pub(crate) fn stats(&self) -> TierStats {
        let total: usize = self.groups.iter().map(|group_slots| group_slots.entries.len()).sum();
        let free: usize = self.groups.iter().map(|group_slots| group_slots.free.len()).sum();
        let known: usize = self.groups.iter().map(|group_slots| group_slots.index.bytes()).sum();
        let lifts = |count: fn(&Lifts) -> u64| self.groups.iter().map(|group_slots| count(&group_slots.lifts)).sum();
        let writing =
            self.writing.len() + self.groups.iter().map(|group_slots| group_slots.lifts.under_way()).sum::<usize>();
        TierStats {
            total: total as u32,
            free: free as u32,
            writing: writing as u32,
            held: (total - free - writing) as u32,
            lifted: lifts(Lifts::landed),
            lifted_in_vain: lifts(Lifts::in_vain),
            backlog: self.backlog.len() as u32,
            index_bytes: (SLOT_BYTES * total + known + SEEN_BYTES * self.seen.len()) as u64,
            index_bytes_max: (SLOT_BYTES * total
                + ChangeTrackingMap::<u32>::bytes_max(total)
                + SEEN_BYTES * self.seen.max()) as u64,
            ..self.stats
        }
    }

    /// Records that are held, of each group.
    pub(crate) fn held(&self) -> impl Iterator<Item = (GroupId, usize)> {
        self.groups.iter().enumerate().map(|(group, group_slots)| (GroupId(group as u16), group_slots.index.len()))
    }

    /// Asserts what can be asserted cheaply; [`TierSlots::check`] looks at every slot.
    fn assert_conserved(&self) {
        let held: usize = self.groups.iter().map(|group_slots| group_slots.index.len()).sum();
        let stats = self.stats();
        let taken: u32 = self.groups.iter().map(|group_slots| group_slots.tenants.taken()).sum();
        assert!(self.groups.iter().all(|group_slots| group_slots.lifts.is_bounded()), "too much is lifted");
        // A record that turned out wrong is in no index while others still read it.
        assert!(
            self.writing.len() <= self.config.writes_max
                && held as u32 <= stats.held
                && taken == stats.writing + stats.held,
            "slots are not conserved: {stats:?}"
        );
    }

    /// Asserts everything about the slots.
    pub(crate) fn check(&self) {
        self.assert_conserved();
        let mut writing = 0;
        for group_slots in &self.groups {
            let (mut free, mut idle, mut indexed, mut lifting, mut unread) = (0, 0, 0, 0, 0);
            for (slot, entry) in (0..).zip(&group_slots.entries) {
                let listed = group_slots.free.iter().filter(|&&free| free == slot).count();
                assert_eq!(listed, usize::from(entry.state == State::Free), "slot {slot} and the free list");
                assert!(entry.readers == 0 || entry.state == State::Held, "slot {slot} is read");
                assert!(!entry.unread || entry.state == State::Held && entry.readers == 0, "slot {slot} is not read");
                unread += u32::from(entry.unread);
                match entry.state {
                    State::Free => free += 1,
                    State::Writing(_) => writing += 1,
                    State::Lifting => lifting += 1,
                    State::Held => {
                        let found = group_slots.index.get(&entry.hash) == Some(&slot);
                        assert_eq!(found, !entry.wrong, "slot {slot} and the index");
                        assert!(!entry.wrong || entry.readers > 0, "slot {slot} is wrong and held");
                        indexed += usize::from(found);
                        idle += u32::from(entry.readers == 0);
                    }
                }
            }
            assert_eq!((free, indexed), (group_slots.free.len(), group_slots.index.len()), "slots by state");
            assert_eq!(idle, group_slots.order.len(), "the queue has what nobody reads");
            group_slots.lifts.check(lifting, unread);
            group_slots.tenants.check(|slot| group_slots.order.contains(slot));
        }
        assert_eq!(writing, self.writing.len(), "slots being written");
        self.backlog.check(self.config.backlog_max);
        self.seen.check();
    }
}

impl GroupSlots {
    /// Notes that the slot, which is in no list, holds the record.
    fn hold(&mut self, slot: u32, BlockLink { parent, hash }: BlockLink) {
        self.entries[slot as usize] = Entry { state: State::Held, hash, parent, ..Entry::FREE };
        self.index.insert(hash, slot);
        self.rest(slot);
    }

    /// Puts the slot, which holds a record and is not being read, into the order of eviction.
    fn rest(&mut self, slot: u32) {
        self.order.push(slot);
        self.tenants.enter(slot);
    }

    /// Takes the slot, which is not being read, out of the order of eviction.
    fn stir(&mut self, slot: u32) {
        self.order.remove(slot);
        self.tenants.exit(slot);
    }

    /// Notes that the slot, which holds a record, counts as used. A record that is being read is in no order.
    fn touch(&mut self, slot: u32) {
        if self.entries[slot as usize].readers == 0 {
            self.stir(slot);
            self.rest(slot);
        }
    }

    /// Notes that the slot, which is in no list, holds nothing.
    fn clear(&mut self, slot: u32) {
        self.drop_lift(slot);
        self.entries[slot as usize] = Entry::FREE;
        self.tenants.free(slot);
        self.free.push(slot);
    }

    /// Takes a slot for the tenant to write to. `None`: there is none, which is counted.
    fn take(&mut self, tenant: Tenant, stats: &mut TierStats) -> Option<u32> {
        if self.free.is_empty() {
            let full = self.tenants.is_full(tenant);
            let named = if full { self.tenants.oldest(tenant) } else { self.tenants.oldest_over(tenant) };
            let (slot, count) = match named {
                Some(slot) => (Some(slot), &mut stats.quota_evictions),
                None if full => (None, &mut stats.quota_refused),
                None => match self.order.oldest() {
                    Some(slot) => (Some(slot), &mut stats.evictions),
                    None => (None, &mut stats.refused),
                },
            };
            *count += 1;
            let slot = slot?;
            self.index.remove(&self.entries[slot as usize].hash);
            self.stir(slot);
            self.clear(slot);
        }
        let slot = self.free.pop()?;
        self.tenants.take(slot, tenant);
        Some(slot)
    }
}

fn at(group: GroupId) -> usize {
    usize::from(group.0)
}
