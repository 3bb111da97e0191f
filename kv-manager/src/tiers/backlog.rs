//! The blocks that wait to be written to a tier.

use domain::{BlockHash, BlockRef, Generation};
use std::collections::{BTreeSet, VecDeque};

/// A block that shall be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) block: BlockRef,
    pub(super) generation: Generation,
    pub(super) hash: BlockHash,
}

/// In the order in which they came, each once.
#[derive(Clone, Default)]
pub(super) struct Backlog {
    order: VecDeque<Wanted>,
    /// What a block holds, while it waits.
    waiting: BTreeSet<(BlockRef, Generation)>,
}

impl Backlog {
    /// Returns the number of blocks that wait.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether what the block holds waits already.
    pub(super) fn contains(&self, block: BlockRef, generation: Generation) -> bool {
        self.waiting.contains(&(block, generation))
    }

    /// Adds a block behind all others, unless it waits already.
    pub(super) fn push(&mut self, wanted: Wanted) {
        self.waiting.insert((wanted.block, wanted.generation));
        self.order.push_back(wanted);
    }

    /// Takes the one that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Wanted> {
        let wanted = self.order.pop_front()?;
        self.waiting.remove(&(wanted.block, wanted.generation));
        Some(wanted)
    }

    /// Removes all blocks: none is to be written any more.
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.waiting.clear();
    }

    /// Asserts that each waits once, and no more than so many.
    pub(super) fn check(&self, max: usize) {
        assert!(self.waiting.len() == self.order.len() && self.order.len() <= max, "a bound is exceeded");
    }
}
