//! Least recently used: one queue, which a block enters at the newest end whenever its last user leaves it. Every
//! operation takes constant time.

use super::Eviction;
use super::queue::Queue;
use domain::{BlockHash, BlockId};

/// The order of last uses.
#[derive(Clone, Debug)]
pub(super) struct Lru {
    queue: Queue,
}

impl Lru {
    /// Makes the policy of an empty pool of `blocks` blocks.
    pub(super) fn new(blocks: u32) -> Self {
        Self { queue: Queue::new(blocks) }
    }
}

impl Eviction for Lru {
    fn insert(&mut self, block: BlockId, _: BlockHash, _: Option<BlockHash>) {
        self.queue.push(block.0);
    }

    fn remove(&mut self, block: BlockId) {
        self.queue.remove(block.0);
    }

    fn pop(&mut self) -> Option<BlockId> {
        self.queue.pop().map(BlockId)
    }

    fn forget(&mut self, block: BlockId) {
        self.remove(block);
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn block_bytes(&self) -> usize {
        Queue::SLOT_BYTES
    }

    fn boxed_clone(&self) -> Box<dyn Eviction> {
        Box::new(self.clone())
    }
}
