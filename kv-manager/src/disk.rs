//! The disk tier: which slot of the worker's files holds which record, and which records are worth writing.
//!
//! It decides; the files, the log of what they hold ([`log`]) and the bytes of records ([`header`]) are read and written by a
//! shell, which says how each move ended. A slot is free, being written, or held; their sum is the tier, asserted at every
//! change. What is read is verified by the shell before anybody relies on it, so an entry that is wrong costs time, never
//! tokens.

pub mod header;
pub mod log;

use crate::eviction::Queue;
use domain::{BlockHash, BlockRef, Generation, GroupId};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

/// When a sealed block is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WritePolicy {
    /// When it is sealed.
    Through,
    /// When it is used a second time, out of the cache or because it had to be computed again: a block that nobody asks for
    /// again never wears the disk.
    #[default]
    SecondUse,
}

/// Size and bounds of the tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Slots of each KV group.
    pub slots: Vec<u32>,
    /// Records being written at once.
    pub writes_max: usize,
    /// Blocks that wait to be written. When full, one more is not written, and counted.
    pub backlog_max: usize,
    /// What is written.
    pub write: WritePolicy,
}

/// A place for one record of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot {
    /// The group, which decides the record's size.
    pub group: GroupId,
    /// Which of the group's.
    pub slot: u32,
}

/// A record shall be written: the bytes of `block`, which stay as they are until [`crate::KvManager::wrote`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskWrite {
    /// Where to.
    pub slot: Slot,
    /// From where.
    pub block: BlockRef,
    /// The record's identity.
    pub hash: BlockHash,
}

/// A record shall be read into `block`, which is its reader's until it said how that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRead {
    /// From where.
    pub slot: Slot,
    /// Where to.
    pub block: BlockRef,
    /// The identity that it must have.
    pub hash: BlockHash,
    /// Which block of the sequence it is.
    pub number: u32,
}

/// Counts of the tier, in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DiskStats {
    /// Slots: always `free + writing + held`.
    pub total: u32,
    /// That hold nothing.
    pub free: u32,
    /// Being written.
    pub writing: u32,
    /// That hold a record.
    pub held: u32,
    /// Blocks that wait to be written.
    pub backlog: u32,
    /// Written, since the start.
    pub written: u64,
    /// Read and verified, since the start.
    pub read: u64,
    /// Given up for others, since the start.
    pub evictions: u64,
    /// Not written though they should have been (too many wait, or every slot is in use), since the start.
    pub refused: u64,
    /// That failed to be written, since the start.
    pub failed: u64,
    /// Found wrong when they were read, since the start.
    pub corrupt: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Writing(BlockRef),
    Held,
}

#[derive(Clone, Debug)]
struct Place {
    state: State,
    hash: BlockHash,
    /// Reads under way.
    readers: u32,
    /// It turned out wrong while others read it: free when they end.
    wrong: bool,
}

type SlotMap = HashMap<BlockHash, u32, BuildHasherDefault<DefaultHasher>>;

/// The slots of one group.
#[derive(Clone)]
struct Shelf {
    places: Vec<Place>,
    free: Vec<u32>,
    index: SlotMap,
    /// Held slots that nobody reads, the one that was read or written last at the end.
    order: Queue,
}

/// A block that shall be written.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    block: BlockRef,
    generation: Generation,
    hash: BlockHash,
}

/// The identities that were sealed lately, so many at most; the oldest is forgotten first.
#[derive(Clone)]
struct Seen {
    known: HashSet<(GroupId, BlockHash), BuildHasherDefault<DefaultHasher>>,
    order: VecDeque<(GroupId, BlockHash)>,
    max: usize,
}

impl Seen {
    /// Whether it was not among them; it is now.
    fn first(&mut self, group: GroupId, hash: BlockHash) -> bool {
        let first = self.known.insert((group, hash));
        if first {
            self.order.push_back((group, hash));
            if self.order.len() > self.max
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        first
    }
}

/// Identities that are remembered for each slot.
const SEEN_PER_SLOT: usize = 2;

/// The tier of one worker.
#[derive(Clone)]
pub(crate) struct Disk {
    config: DiskConfig,
    shelves: Vec<Shelf>,
    backlog: VecDeque<Wanted>,
    seen: Seen,
    /// Records being written.
    writing: Vec<(GroupId, BlockHash)>,
    given_up: bool,
    stats: DiskStats,
}

impl Disk {
    /// A tier that holds nothing.
    pub(crate) fn new(config: DiskConfig) -> Self {
        let place = || Place { state: State::Free, hash: BlockHash::default(), readers: 0, wrong: false };
        let shelf = |&slots: &u32| Shelf {
            places: (0..slots).map(|_| place()).collect(),
            free: (0..slots).rev().collect(),
            index: SlotMap::default(),
            order: Queue::new(slots),
        };
        let shelves = config.slots.iter().map(shelf).collect();
        let slots: u32 = config.slots.iter().sum();
        let seen = Seen { known: HashSet::default(), order: VecDeque::new(), max: SEEN_PER_SLOT * slots as usize };
        Self {
            shelves,
            backlog: VecDeque::new(),
            seen,
            writing: Vec::new(),
            given_up: false,
            stats: DiskStats::default(),
            config,
        }
    }

    /// A block was sealed.
    pub(crate) fn sealed(&mut self, block: BlockRef, generation: Generation, hash: BlockHash) {
        if self.config.write == WritePolicy::Through || !self.seen.first(block.group, hash) {
            self.want(block, generation, hash);
        }
    }

    /// A sequence took a block over from the cache.
    pub(crate) fn hit(&mut self, block: BlockRef, generation: Generation, hash: BlockHash) {
        if self.config.write == WritePolicy::SecondUse {
            self.want(block, generation, hash);
        }
    }

    /// The records that were written in an earlier life, the oldest first; nothing was written in this one yet. Those whose
    /// slot does not exist are left out; of those that name a slot or an identity twice, the last counts.
    pub(crate) fn recover(&mut self, records: &[(Slot, BlockHash)]) {
        for &(Slot { group, slot }, hash) in records.iter().rev() {
            let Some(shelf) = self.shelves.get_mut(at(group)) else { continue };
            let is_free = shelf.places.get(slot as usize).is_some_and(|place| place.state == State::Free);
            if is_free && !shelf.index.contains_key(&hash) {
                shelf.places[slot as usize] = Place { state: State::Held, hash, readers: 0, wrong: false };
                shelf.index.insert(hash, slot);
            }
        }
        for &(Slot { group, slot }, hash) in records {
            let Some(shelf) = self.shelves.get_mut(at(group)) else { continue };
            if shelf.index.get(&hash) == Some(&slot) && !shelf.order.contains(slot) {
                shelf.order.push(slot);
            }
        }
        for shelf in &mut self.shelves {
            let Shelf { free, places, .. } = shelf;
            free.retain(|&slot| places[slot as usize].state == State::Free);
        }
        self.assert_conserved();
    }

    /// Nothing is found here from now on, and nothing is written.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
        self.backlog.clear();
    }

    pub(crate) fn holds(&self, group: GroupId, hash: BlockHash) -> bool {
        !self.given_up && self.shelves[at(group)].index.contains_key(&hash)
    }

    /// The block shall be written, some time.
    fn want(&mut self, block: BlockRef, generation: Generation, hash: BlockHash) {
        if self.given_up || self.holds(block.group, hash) {
            return;
        }
        if self.backlog.len() >= self.config.backlog_max {
            self.stats.refused += 1;
            return;
        }
        self.backlog.push_back(Wanted { block, generation, hash });
    }

    /// The next record to write, if another may be under way. `is_there` says whether a block still holds what was wanted of
    /// it.
    pub(crate) fn next_write(
        &mut self,
        is_there: impl Fn(BlockRef, Generation, BlockHash) -> bool,
    ) -> Option<DiskWrite> {
        while self.writing.len() < self.config.writes_max {
            let Wanted { block, generation, hash } = self.backlog.pop_front()?;
            let shelf = &mut self.shelves[at(block.group)];
            let known = shelf.index.contains_key(&hash) || self.writing.contains(&(block.group, hash));
            if known || !is_there(block, generation, hash) {
                continue;
            }
            let Some(slot) = shelf.take(&mut self.stats.evictions) else {
                self.stats.refused += 1;
                continue;
            };
            shelf.places[slot as usize] = Place { state: State::Writing(block), hash, readers: 0, wrong: false };
            self.writing.push((block.group, hash));
            self.assert_conserved();
            return Some(DiskWrite { slot: Slot { group: block.group, slot }, block, hash });
        }
        None
    }

    /// A write ended. The block it was made from.
    pub(crate) fn wrote(&mut self, slot: Slot, good: bool) -> BlockRef {
        let shelf = &mut self.shelves[at(slot.group)];
        let Place { state: State::Writing(block), hash, .. } = shelf.places[slot.slot as usize] else {
            panic!("{slot:?} is not being written");
        };
        self.writing.retain(|&writing| writing != (slot.group, hash));
        if good {
            shelf.hold(slot.slot, hash);
            self.stats.written += 1;
        } else {
            shelf.places[slot.slot as usize].state = State::Free;
            shelf.free.push(slot.slot);
            self.stats.failed += 1;
        }
        self.assert_conserved();
        block
    }

    /// A read of a record that is held begins. Where it is.
    pub(crate) fn begin_read(&mut self, group: GroupId, hash: BlockHash) -> Option<Slot> {
        if self.given_up {
            return None;
        }
        let shelf = &mut self.shelves[at(group)];
        let slot = *shelf.index.get(&hash)?;
        let place = &mut shelf.places[slot as usize];
        place.readers += 1;
        if place.readers == 1 {
            shelf.order.remove(slot);
        }
        self.assert_conserved();
        Some(Slot { group, slot })
    }

    /// A read ended. `good`: the record was verified; `Some(false)`: it is not what it should be, and is given up. `None`:
    /// nothing is known of it.
    pub(crate) fn end_read(&mut self, slot: Slot, good: Option<bool>) {
        let shelf = &mut self.shelves[at(slot.group)];
        let place = &mut shelf.places[slot.slot as usize];
        assert!(place.readers > 0 && place.state == State::Held, "{slot:?} is not read");
        place.readers -= 1;
        match good {
            Some(true) => self.stats.read += 1,
            Some(false) if !place.wrong => {
                self.stats.corrupt += 1;
                place.wrong = true;
                // Nobody finds it any more.
                shelf.index.remove(&place.hash);
            }
            _ => {}
        }
        if place.readers == 0 {
            if place.wrong {
                *place = Place { state: State::Free, hash: BlockHash::default(), readers: 0, wrong: false };
                shelf.free.push(slot.slot);
            } else {
                shelf.order.push(slot.slot);
            }
        }
        self.assert_conserved();
    }

    /// The blocks that are being written.
    pub(crate) fn written_from(&self) -> impl Iterator<Item = BlockRef> {
        let places = self.shelves.iter().flat_map(|shelf| &shelf.places);
        places.filter_map(|place| if let State::Writing(block) = place.state { Some(block) } else { None })
    }

    /// The counts.
    pub(crate) fn stats(&self) -> DiskStats {
        let total: usize = self.shelves.iter().map(|shelf| shelf.places.len()).sum();
        let free: usize = self.shelves.iter().map(|shelf| shelf.free.len()).sum();
        DiskStats {
            total: total as u32,
            free: free as u32,
            writing: self.writing.len() as u32,
            held: (total - free - self.writing.len()) as u32,
            backlog: self.backlog.len() as u32,
            ..self.stats
        }
    }

    /// Asserts what can be asserted cheaply; [`Disk::check`] looks at every slot.
    fn assert_conserved(&self) {
        let held: usize = self.shelves.iter().map(|shelf| shelf.index.len()).sum();
        let stats = self.stats();
        // A record that turned out wrong is in no index while others still read it.
        assert!(
            self.writing.len() <= self.config.writes_max && held as u32 <= stats.held,
            "slots are not conserved: {stats:?}"
        );
    }

    /// Asserts everything about the slots.
    pub(crate) fn check(&self) {
        self.assert_conserved();
        let mut writing = 0;
        for shelf in &self.shelves {
            let (mut free, mut idle, mut indexed) = (0, 0, 0);
            for (slot, place) in (0..).zip(&shelf.places) {
                let listed = shelf.free.iter().filter(|&&free| free == slot).count();
                assert_eq!(listed, usize::from(place.state == State::Free), "slot {slot} and the free list");
                assert!(place.readers == 0 || place.state == State::Held, "slot {slot} is read");
                match place.state {
                    State::Free => free += 1,
                    State::Writing(_) => writing += 1,
                    State::Held => {
                        let found = shelf.index.get(&place.hash) == Some(&slot);
                        assert_eq!(found, !place.wrong, "slot {slot} and the index");
                        assert!(!place.wrong || place.readers > 0, "slot {slot} is wrong and held");
                        indexed += usize::from(found);
                        idle += u32::from(place.readers == 0);
                    }
                }
            }
            assert_eq!((free, indexed), (shelf.free.len(), shelf.index.len()), "slots by state");
            assert_eq!(idle, shelf.order.len(), "the queue has what nobody reads");
        }
        assert_eq!(writing, self.writing.len(), "slots being written");
        assert!(self.backlog.len() <= self.config.backlog_max, "a bound is exceeded");
        let Seen { known, order, max } = &self.seen;
        assert!(known.len() == order.len() && order.len() <= *max, "a bound is exceeded");
    }
}

impl Shelf {
    /// The slot, which is in no list, holds the record.
    fn hold(&mut self, slot: u32, hash: BlockHash) {
        self.places[slot as usize] = Place { state: State::Held, hash, readers: 0, wrong: false };
        self.index.insert(hash, slot);
        self.order.push(slot);
    }

    /// A slot to write to.
    fn take(&mut self, evictions: &mut u64) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.order.pop()?;
        self.index.remove(&self.places[slot as usize].hash);
        *evictions += 1;
        Some(slot)
    }
}

fn at(group: GroupId) -> usize {
    usize::from(group.0)
}
