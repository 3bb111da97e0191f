//! Leaves before their prefix: among the blocks that may go and that none of these continues, the least recently
//! used goes. A block is worth nothing without those before it, so that it never outlives them here, in whichever
//! order they were used.
//!
//! An operation takes two look-ups by identity, and logarithmic time in the number of leaves where a block begins
//! or ceases to be one.

use super::Eviction;
use domain::{BlockHash, BlockId, ByIdentity};
use std::collections::{BTreeSet, HashMap};

/// A block that is in.
#[derive(Clone, Copy, Debug)]
struct Node {
    hash: BlockHash,
    parent: Option<BlockHash>,
    /// Number of its last insertion, which rises over all blocks.
    used: u64,
}

/// What is known of an identity.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The block that holds it, if one is in.
    block: Option<BlockId>,
    /// Blocks that are in and continue it.
    children: u32,
}

/// The blocks by identity, and the leaves by their last use.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Option<Node>>,
    /// Identities of blocks that are in, and of the blocks that these continue: at most twice the pool.
    entries: HashMap<BlockHash, Entry, ByIdentity>,
    leaves: BTreeSet<(u64, BlockId)>,
    insertions: u64,
    len: u32,
}

impl Tree {
    /// Makes the policy of an empty pool of `blocks` blocks.
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            nodes: vec![None; blocks as usize],
            entries: HashMap::with_capacity_and_hasher(2 * blocks as usize, ByIdentity::default()),
            leaves: BTreeSet::new(),
            insertions: 0,
            len: 0,
        }
    }

    /// Returns when a block that is in was last used.
    fn used(&self, block: BlockId) -> u64 {
        self.nodes[block.0 as usize].as_ref().unwrap_or_else(|| panic!("{block} is not in")).used
    }
}

impl Eviction for Tree {
    fn insert(&mut self, block: BlockId, hash: BlockHash, parent: Option<BlockHash>) {
        self.insertions += 1;
        let node = Node { hash, parent, used: self.insertions };
        let before = self.nodes[block.0 as usize].replace(node);
        assert!(before.is_none(), "{block} is in already");
        let entry = self.entries.entry(hash).or_default();
        assert!(entry.block.is_none(), "two blocks hold {hash:?}");
        entry.block = Some(block);
        if entry.children == 0 {
            self.leaves.insert((node.used, block));
        }
        if let Some(parent) = parent {
            let entry = self.entries.entry(parent).or_default();
            entry.children += 1;
            if let (1, Some(block)) = (entry.children, entry.block) {
                let used = self.used(block);
                self.leaves.remove(&(used, block));
            }
        }
        self.len += 1;
    }

    fn remove(&mut self, block: BlockId) {
        let node = self.nodes[block.0 as usize].take().unwrap_or_else(|| panic!("{block} is not in"));
        self.leaves.remove(&(node.used, block));
        let entry = self.entries.get_mut(&node.hash).expect("a block that is in has an entry");
        entry.block = None;
        if entry.children == 0 {
            self.entries.remove(&node.hash);
        }
        if let Some(parent) = node.parent {
            let entry = self.entries.get_mut(&parent).expect("a block that is continued has an entry");
            entry.children -= 1;
            match *entry {
                Entry { children: 0, block: Some(block) } => {
                    let used = self.used(block);
                    self.leaves.insert((used, block));
                }
                Entry { children: 0, block: None } => {
                    self.entries.remove(&parent);
                }
                _ => {}
            }
        }
        self.len -= 1;
    }

    fn pop(&mut self) -> Option<BlockId> {
        let &(_, block) = self.leaves.first()?;
        self.remove(block);
        Some(block)
    }

    fn forget(&mut self, block: BlockId) {
        self.remove(block);
    }

    fn len(&self) -> u32 {
        self.len
    }

    fn block_bytes(&self) -> usize {
        // Two identities for each block, in a map that is half full, and a leaf in a tree that is.
        let (entry, leaf) = (size_of::<(BlockHash, Entry)>(), size_of::<(u64, BlockId)>());
        size_of::<Option<Node>>() + 2 * 2 * entry + 2 * leaf
    }

    fn boxed_clone(&self) -> Box<dyn Eviction> {
        Box::new(self.clone())
    }
}
