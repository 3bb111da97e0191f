//! Which cached block goes first. A policy is a sibling file behind one small trait; it orders, and knows nothing of
//! leases or sequences: the pool tells it which blocks may go at all.

mod ghosts;
mod lru;
mod queue;
mod s3_fifo;
mod tree;

use crate::config::EvictionPolicy;
use domain::{BlockHash, BlockId};
use lru::Lru;
pub(crate) use queue::Queue;
use s3_fifo::S3Fifo;
use tree::Tree;

/// Order of the blocks of one pool that may be evicted.
pub(crate) trait Eviction: Send {
    /// Adds a block that may be evicted from now on. It holds the bytes of `hash`, which no other block that is in
    /// holds. It continues the block of identity `parent` (`None`: it is the first of its sequences). Blocks that come
    /// together come in the order in which they shall go.
    fn insert(&mut self, block: BlockId, hash: BlockHash, parent: Option<BlockHash>);

    /// Removes a block that is in: it is used again, and may not be evicted. It comes back by
    /// [`insert`](Self::insert), as what it was, before its memory is given to another use.
    fn remove(&mut self, block: BlockId);

    /// Takes out the block that goes first. Where it is used again before its memory is given to another use, it
    /// comes back by [`insert`](Self::insert), as what it was.
    fn pop(&mut self) -> Option<BlockId>;

    /// Takes out this block, which is in, as [`pop`](Self::pop) does the one that goes first.
    fn forget(&mut self, block: BlockId);

    /// Returns the number of blocks that are in.
    fn len(&self) -> u32;

    /// Returns about how many bytes it takes at most for each block of the pool.
    fn block_bytes(&self) -> usize;

    /// Returns a copy of the order.
    fn boxed_clone(&self) -> Box<dyn Eviction>;
}

impl Clone for Box<dyn Eviction> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// Makes the policy for a pool of `blocks` blocks. A windowed group needs the end of a sequence and not its head.
/// There `tree` would keep what is worth least, so such a group uses `lru` instead.
pub(crate) fn policy(policy: EvictionPolicy, blocks: u32, windowed: bool) -> Box<dyn Eviction> {
    match policy {
        EvictionPolicy::Tree if !windowed => Box::new(Tree::new(blocks)),
        EvictionPolicy::Lru | EvictionPolicy::Tree => Box::new(Lru::new(blocks)),
        EvictionPolicy::S3Fifo => Box::new(S3Fifo::new(blocks)),
    }
}

#[cfg(test)]
mod tests;
