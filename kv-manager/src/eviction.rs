//! Which cached block goes first. A policy is a sibling file behind one small trait; it orders, and knows nothing of
//! hashes, leases or sequences: the pool tells it which blocks may go at all.

mod lru;

pub(crate) use lru::Lru;

use domain::BlockId;

/// Order of the blocks of one pool that may be evicted.
pub(crate) trait Eviction: Send {
    /// The block may be evicted from now on. Blocks that come together come in the order in which they shall go.
    fn insert(&mut self, block: BlockId);

    /// The block, which is in, may no longer be evicted.
    fn remove(&mut self, block: BlockId);

    /// Takes out the block that goes first.
    fn pop(&mut self) -> Option<BlockId>;

    /// Number of blocks that are in.
    fn len(&self) -> u32;

    /// The same order, on its own.
    fn boxed_clone(&self) -> Box<dyn Eviction>;
}

impl Clone for Box<dyn Eviction> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
