//! Identities of blocks that were given up: a bounded queue that is also searched. It holds no bytes of any block.
//! Every operation takes constant time, and none allocates.

use super::queue::Queue;
use domain::{BlockHash, ByIdentity};
use std::collections::HashMap;

/// The identities given up last, each once.
#[derive(Clone, Debug)]
pub(super) struct Ghosts {
    /// Where each identity is.
    places: HashMap<BlockHash, u32, ByIdentity>,
    /// The identity of each slot that is in the queue.
    hashes: Vec<BlockHash>,
    order: Queue,
    /// Slots that are not in the queue.
    spare: Vec<u32>,
}

impl Ghosts {
    /// Bytes that each of them takes, in a map that is half full.
    pub(super) const GHOST_BYTES: usize =
        2 * size_of::<(BlockHash, u32)>() + size_of::<BlockHash>() + Queue::SLOT_BYTES + size_of::<u32>();

    /// Makes room for `ghosts_max` identities.
    pub(super) fn new(ghosts_max: u32) -> Self {
        Self {
            places: HashMap::with_capacity_and_hasher(ghosts_max as usize, ByIdentity::default()),
            hashes: vec![BlockHash([0; 16]); ghosts_max as usize],
            order: Queue::new(ghosts_max),
            spare: (0..ghosts_max).rev().collect(),
        }
    }

    /// Remembers an identity, which is not remembered yet; where there is no room, forgets the oldest one for it.
    pub(super) fn remember(&mut self, hash: BlockHash) {
        let slot = self.spare.pop().or_else(|| {
            let oldest = self.order.pop()?;
            self.places.remove(&self.hashes[oldest as usize]);
            Some(oldest)
        });
        let Some(slot) = slot else { return };
        self.hashes[slot as usize] = hash;
        self.order.push(slot);
        let before = self.places.insert(hash, slot);
        assert!(before.is_none(), "{hash:?} is remembered already");
    }

    /// Forgets an identity. Whether it was remembered.
    pub(super) fn take(&mut self, hash: BlockHash) -> bool {
        let Some(slot) = self.places.remove(&hash) else { return false };
        self.order.remove(slot);
        self.spare.push(slot);
        true
    }
}
