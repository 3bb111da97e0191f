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
    /// The block may be evicted from now on. It holds the bytes of `hash`, which no other block that is in holds,
    /// and continues the block of identity `parent` (`None`: it is the first of its sequences). Blocks that come
    /// together come in the order in which they shall go.
    fn insert(&mut self, block: BlockId, hash: BlockHash, parent: Option<BlockHash>);

    /// The block, which is in, may no longer be evicted: it is used again. It comes back by
    /// [`insert`](Self::insert), as what it was, before its memory is given to another use.
    fn remove(&mut self, block: BlockId);

    /// Takes out the block that goes first. Where it is used again before its memory is given to another use, it
    /// comes back by [`insert`](Self::insert), as what it was.
    fn pop(&mut self) -> Option<BlockId>;

    /// Takes out this block, which is in, as [`pop`](Self::pop) does the one that goes first.
    fn forget(&mut self, block: BlockId);

    /// Number of blocks that are in.
    fn len(&self) -> u32;

    /// Bytes that it takes for each block of the pool, about, at most.
    fn block_bytes(&self) -> usize;

    /// The same order, on its own.
    fn boxed_clone(&self) -> Box<dyn Eviction>;
}

impl Clone for Box<dyn Eviction> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// The policy for a pool of `blocks` blocks. What a windowed group needs of a sequence is its end, not its head: there
/// `tree` would keep what is worth least, so such a group goes by `lru` instead.
pub(crate) fn policy(policy: EvictionPolicy, blocks: u32, windowed: bool) -> Box<dyn Eviction> {
    match policy {
        EvictionPolicy::Tree if !windowed => Box::new(Tree::new(blocks)),
        EvictionPolicy::Lru | EvictionPolicy::Tree => Box::new(Lru::new(blocks)),
        EvictionPolicy::S3Fifo => Box::new(S3Fifo::new(blocks)),
    }
}

#[cfg(test)]
mod tests;
