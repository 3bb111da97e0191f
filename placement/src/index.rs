//! Which blocks each worker has cached, as far as its reports say. A hint, never a promise: an entry that is wrong
//! costs time, not correctness.

use domain::{BlockHash, WorkerId};
use std::collections::{BTreeMap, HashMap};

/// Entries `(worker, block)` in order of their last use, bounded.
#[derive(Debug)]
pub(crate) struct PrefixIndex {
    entries_max: usize,
    /// Last use of each entry; unique.
    used: HashMap<(WorkerId, BlockHash), u64>,
    by_use: BTreeMap<u64, (WorkerId, BlockHash)>,
    clock: u64,
}

impl PrefixIndex {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries_max, used: HashMap::new(), by_use: BTreeMap::new(), clock: 0 }
    }

    /// Leading blocks of `chain` that the worker has.
    pub(crate) fn held(&self, worker: WorkerId, chain: &[BlockHash]) -> u32 {
        chain.iter().take_while(|&&block| self.used.contains_key(&(worker, block))).count() as u32
    }

    /// The worker has these blocks. Within a call earlier ones count as used later: a block is of no use without
    /// those before it, so they are dropped after it.
    pub(crate) fn insert(&mut self, worker: WorkerId, blocks: &[BlockHash]) {
        for &block in blocks.iter().rev() {
            self.touch((worker, block));
        }
        while self.used.len() > self.entries_max {
            let (_, oldest) = self.by_use.pop_first().expect("as many uses as entries");
            self.used.remove(&oldest);
        }
    }

    /// The worker's blocks at the head of `chain` are about to be used.
    pub(crate) fn refresh(&mut self, worker: WorkerId, chain: &[BlockHash]) {
        let held = self.held(worker, chain) as usize;
        self.insert(worker, &chain[..held]);
    }

    /// The worker has these blocks no more.
    pub(crate) fn remove(&mut self, worker: WorkerId, blocks: &[BlockHash]) {
        for &block in blocks {
            if let Some(at) = self.used.remove(&(worker, block)) {
                self.by_use.remove(&at);
            }
        }
    }

    /// Nothing is known of the worker.
    pub(crate) fn clear(&mut self, worker: WorkerId) {
        self.used.retain(|entry, _| entry.0 != worker);
        self.by_use.retain(|_, entry| entry.0 != worker);
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.used.len()
    }

    fn touch(&mut self, entry: (WorkerId, BlockHash)) {
        self.clock += 1;
        if let Some(before) = self.used.insert(entry, self.clock) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.clock, entry);
    }
}
