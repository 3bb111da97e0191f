//! Which blocks each worker has, and where, as far as its reports say. A hint, never a promise: an entry that is wrong
//! costs time, not correctness.

use domain::{BlockHash, ByIdentity, WorkerId};
use std::collections::{BTreeMap, HashMap};

/// Where a worker has a block, the fastest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// On its device.
    Device,
    /// In its host tier.
    Host,
    /// On its disk.
    Disk,
}

/// What a worker has of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    /// Leading blocks that are on its device.
    pub(crate) device: u32,
    /// Leading blocks that it has anywhere.
    pub(crate) all: u32,
    /// How many of those are in its host tier.
    pub(crate) host: u32,
    /// How many are on its disk.
    pub(crate) disk: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its place in the order of uses; unique.
    used: u64,
    place: Place,
}

/// What an entry takes: in a map and in a tree that are half full.
const ENTRY_BYTES: usize =
    2 * size_of::<((WorkerId, BlockHash), Entry)>() + 2 * size_of::<(u64, (WorkerId, BlockHash))>();

/// Entries `(worker, block)` in order of their last use, bounded.
#[derive(Debug)]
pub(crate) struct PrefixIndex {
    entries_max: usize,
    entries: HashMap<(WorkerId, BlockHash), Entry, ByIdentity>,
    by_use: BTreeMap<u64, (WorkerId, BlockHash)>,
    /// The newest place in the order, and the oldest.
    newest: u64,
    oldest: u64,
}

impl PrefixIndex {
    pub(crate) fn new(entries_max: usize) -> Self {
        let middle = u64::MAX / 2;
        let (entries, by_use) = (HashMap::default(), BTreeMap::new());
        Self { entries_max, entries, by_use, newest: middle, oldest: middle }
    }

    /// What the worker has at the head of `chain`.
    pub(crate) fn held(&self, worker: WorkerId, chain: &[BlockHash]) -> Held {
        let mut held = Held::default();
        for entry in chain.iter().map_while(|&block| self.entries.get(&(worker, block))) {
            match entry.place {
                Place::Device => held.device += u32::from(held.device == held.all),
                Place::Host => held.host += 1,
                Place::Disk => held.disk += 1,
            }
            held.all += 1;
        }
        held
    }

    /// The worker has these blocks on its device. Within a call earlier ones count as used later: a block is of no use without
    /// those before it, so they are dropped after it.
    pub(crate) fn insert(&mut self, worker: WorkerId, blocks: &[BlockHash]) {
        for &block in blocks.iter().rev() {
            self.touch((worker, block), Place::Device);
        }
        while self.entries.len() > self.entries_max {
            let (_, oldest) = self.by_use.pop_first().expect("as many uses as entries");
            self.entries.remove(&oldest);
        }
    }

    /// The worker has these blocks in a tier, and not on its device. That is no use of them: those that were not known take no other's
    /// room, and go first.
    pub(crate) fn lower(&mut self, worker: WorkerId, blocks: &[BlockHash], place: Place) {
        for &block in blocks {
            if let Some(entry) = self.entries.get_mut(&(worker, block)) {
                entry.place = place;
            } else if self.entries.len() < self.entries_max {
                self.oldest -= 1;
                self.entries.insert((worker, block), Entry { used: self.oldest, place });
                self.by_use.insert(self.oldest, (worker, block));
            }
        }
    }

    /// The worker's blocks at the head of `chain` are about to be used.
    pub(crate) fn refresh(&mut self, worker: WorkerId, chain: &[BlockHash]) {
        let held = self.held(worker, chain).all as usize;
        for &block in chain[..held].iter().rev() {
            let place = self.entries[&(worker, block)].place;
            self.touch((worker, block), place);
        }
    }

    /// The worker has these blocks no more.
    pub(crate) fn remove(&mut self, worker: WorkerId, blocks: &[BlockHash]) {
        for &block in blocks {
            if let Some(entry) = self.entries.remove(&(worker, block)) {
                self.by_use.remove(&entry.used);
            }
        }
    }

    /// Nothing is known of the worker.
    pub(crate) fn clear(&mut self, worker: WorkerId) {
        self.entries.retain(|entry, _| entry.0 != worker);
        self.by_use.retain(|_, entry| entry.0 != worker);
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that so many entries take, about.
    pub(crate) fn bytes(entries: usize) -> u64 {
        (ENTRY_BYTES * entries) as u64
    }

    fn touch(&mut self, key: (WorkerId, BlockHash), place: Place) {
        self.newest += 1;
        if let Some(before) = self.entries.insert(key, Entry { used: self.newest, place }) {
            self.by_use.remove(&before.used);
        }
        self.by_use.insert(self.newest, key);
    }
}
