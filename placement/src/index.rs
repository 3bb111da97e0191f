//! Which blocks each worker has, and where, as far as its reports say. A hint, never a promise: an entry that is wrong
//! costs time, not correctness.
//!
//! The index is bounded. At the bound a new block takes the place of another one: of its own worker if no other
//! one has more entries, or else of the worker that has the most. So a worker with many blocks pushes out its own,
//! and never those of one with fewer. Of that worker's blocks the leaf goes that was used longest ago, never a
//! block before those that continue it ([`worker`]).

mod worker;

use domain::{BlockHash, BlockLink, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use worker::WorkerBlocks;

/// Where a worker has a block, the fastest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockTier {
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

/// The blocks of all workers, bounded.
#[derive(Debug)]
pub(crate) struct PrefixIndex {
    entries_max: usize,
    /// Workers that have blocks.
    workers: BTreeMap<WorkerId, WorkerBlocks>,
    /// The same workers, by how many they have.
    by_size: BTreeSet<(usize, WorkerId)>,
    entries: usize,
    bytes: usize,
}

impl PrefixIndex {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries_max, workers: BTreeMap::new(), by_size: BTreeSet::new(), entries: 0, bytes: 0 }
    }

    /// Bounds the entries. Those that are too many go, in the order in which new ones would take their places.
    pub(crate) fn limit(&mut self, entries_max: usize) {
        self.entries_max = entries_max;
        while self.entries > entries_max {
            let &(_, largest) = self.by_size.last().expect("entries are some worker's");
            self.drop_leaf(largest);
        }
    }

    /// Returns what the worker has at the head of `chain`.
    pub(crate) fn held(&self, worker: WorkerId, chain: &[BlockHash]) -> Held {
        self.held_about(worker, chain, 0)
    }

    /// The same, where it may well have `guess` blocks on its device, as others do.
    pub(crate) fn held_about(&self, worker: WorkerId, chain: &[BlockHash], guess: u32) -> Held {
        self.workers.get(&worker).map_or(Held::default(), |blocks| blocks.held(chain, guess))
    }

    /// The worker has these blocks on its device. One comes after the block that it continues, or is of no use at
    /// the bound.
    pub(crate) fn insert(&mut self, worker: WorkerId, links: &[BlockLink]) {
        for &link in links {
            if self.has(worker, link.hash) || self.make_room(worker, link.parent) {
                self.change(worker, |blocks| blocks.put(link, BlockTier::Device));
            }
        }
    }

    /// The worker has these blocks in a tier, and not on its device. That is no use of them: those that were not
    /// known take no other's room, and go first.
    pub(crate) fn lower(&mut self, worker: WorkerId, links: &[BlockLink], place: BlockTier) {
        for &link in links {
            if self.has(worker, link.hash) || self.entries < self.entries_max {
                self.change(worker, |blocks| blocks.lower(link, place));
            }
        }
    }

    /// The worker's blocks at the head of `chain` are about to be used. Which block each continues is known from
    /// then on.
    pub(crate) fn refresh(&mut self, worker: WorkerId, chain: &[BlockHash]) {
        let held = self.held(worker, chain).all as usize;
        self.change(worker, |blocks| BlockLink::run(None, &chain[..held]).rev().for_each(|link| blocks.touch(link)));
    }

    /// The worker has these blocks no more.
    pub(crate) fn remove(&mut self, worker: WorkerId, blocks: &[BlockHash]) {
        self.change(worker, |known| blocks.iter().for_each(|&block| known.remove(block)));
    }

    /// Nothing is known of the worker.
    pub(crate) fn clear(&mut self, worker: WorkerId) {
        self.change(worker, |blocks| *blocks = WorkerBlocks::default());
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Bytes that they take, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns what that may become with so many entries.
    pub(crate) fn bytes_max(entries: usize) -> u64 {
        (WorkerBlocks::BLOCK_BYTES_MAX * entries) as u64
    }

    fn has(&self, worker: WorkerId, block: BlockHash) -> bool {
        self.workers.get(&worker).is_some_and(|blocks| blocks.place(block).is_some())
    }

    /// Makes room for one more block of the worker, which continues `parent`. `false`: there is none for it. What
    /// cannot be found, for its parent is not here, takes no other's room; and a parent does not go for its child.
    fn make_room(&mut self, worker: WorkerId, parent: Option<BlockHash>) -> bool {
        if self.entries < self.entries_max {
            return true;
        }
        if parent.is_some_and(|parent| !self.has(worker, parent)) {
            return false;
        }
        let Some(&(most, largest)) = self.by_size.last() else { return false };
        let largest = if self.by_size.contains(&(most, worker)) { worker } else { largest };
        let blocks = &self.workers[&largest];
        match blocks.first_leaf(parent.filter(|_| largest == worker)) {
            Some(leaf) => self.change(largest, |blocks| blocks.remove(leaf)),
            None if blocks.first_leaf(None).is_some() => return false,
            None => self.drop_leaf(largest),
        }
        true
    }

    /// Forgets the leaf of a worker that was used longest ago.
    fn drop_leaf(&mut self, worker: WorkerId) {
        match self.workers[&worker].first_leaf(None) {
            Some(leaf) => self.change(worker, |blocks| blocks.remove(leaf)),
            // Its blocks continue each other in a circle, so what it said is wrong.
            None => self.clear(worker),
        }
    }

    /// Changes what is known of a worker, and brings the counts up to that.
    fn change(&mut self, worker: WorkerId, change: impl FnOnce(&mut WorkerBlocks)) {
        let blocks = self.workers.entry(worker).or_default();
        let (len, bytes) = (blocks.len(), blocks.bytes());
        change(blocks);
        self.entries = self.entries - len + blocks.len();
        self.bytes = self.bytes - bytes + blocks.bytes();
        if len != blocks.len() {
            self.by_size.remove(&(len, worker));
            self.by_size.insert((blocks.len(), worker));
        }
        if blocks.len() == 0 {
            self.by_size.remove(&(0, worker));
            self.workers.remove(&worker);
        }
    }
}
