//! The blocks of one worker as the trees that their chains make, and which of them goes first.
//!
//! Leaves go before their prefix: a block is of no use without those before it. Among the leaves the one goes that
//! was used longest ago. A block whose parent is not known counts as the first of its sequences until somebody
//! says which block it continues.
//!
//! A block on the device is there with all before it, as a rule: so the end of what the device has of a prompt is
//! searched for, and not walked to. Blocks that break the rule are counted, and as long as there is one, it is
//! walked. Of a block whose first one is not known the search takes no notice.

use super::{BlockTier, Held};
use domain::{BlockHash, BlockLink, ByIdentity};
use std::collections::{BTreeSet, HashMap};

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// When it was last used, in the order of uses.
    used: i64,
    /// The block that it continues, which has a node too.
    parent: Option<BlockHash>,
    /// Where the worker has it. `None`: it does not, but has blocks that continue it.
    place: Option<BlockTier>,
    /// Blocks of the worker that continue it.
    children: u32,
    /// Those of them that are on the device.
    on_device: u32,
    /// Which block of its sequences it is, from 1, as far as it is known what it continues; 0: that is not here.
    depth: u32,
}

/// The blocks of a worker.
#[derive(Debug, Default)]
pub(super) struct WorkerBlocks {
    nodes: HashMap<BlockHash, Node, ByIdentity>,
    /// Blocks that no other one continues, by their last use.
    leaves: BTreeSet<(i64, BlockHash)>,
    /// Blocks that it has.
    len: usize,
    /// Blocks on the device that continue one which is not; and those of which it was known what they continue,
    /// and is no more.
    upturned: usize,
    /// The newest place in the order of uses, and the oldest.
    newest: i64,
    oldest: i64,
}

impl WorkerBlocks {
    /// What a node takes, in a map that is half full.
    const NODE_BYTES: usize = 2 * size_of::<(BlockHash, Node)>();
    /// What a leaf takes, in a tree that is half full.
    const LEAF_BYTES: usize = 2 * size_of::<(i64, BlockHash)>();
    /// What a block takes at most: a node, and one of a parent that is not here, and it is a leaf.
    pub(super) const BLOCK_BYTES_MAX: usize = 2 * Self::NODE_BYTES + Self::LEAF_BYTES;

    /// Blocks that it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that they take here, about.
    pub(super) fn bytes(&self) -> usize {
        Self::NODE_BYTES * self.nodes.len() + Self::LEAF_BYTES * self.leaves.len()
    }

    /// Returns what the worker has at the head of `chain`. It is looked first whether that is `guess` blocks on the
    /// device.
    pub(super) fn held(&self, chain: &[BlockHash], guess: u32) -> Held {
        let has = |at: u32| {
            let node = self.nodes.get(&chain[at as usize]);
            node.is_some_and(|node| node.place == Some(BlockTier::Device) && node.depth == at + 1)
        };
        let (mut device, mut beyond) = (0, chain.len() as u32);
        if self.upturned > 0 {
            beyond = 0;
        } else if (1..=beyond).contains(&guess) && has(guess - 1) {
            device = guess;
            beyond = if guess < beyond && !has(guess) { guess } else { beyond };
        } else if beyond > 0 && !has(0) {
            // Most workers have nothing of most prompts.
            beyond = 0;
        }
        while device < beyond {
            let middle = device.midpoint(beyond);
            (device, beyond) = if has(middle) { (middle + 1, beyond) } else { (device, middle) };
        }
        let mut held = Held { device, all: device, ..Held::default() };
        for place in chain[device as usize..].iter().map_while(|&block| self.place(block)) {
            match place {
                BlockTier::Device => held.device += u32::from(held.device == held.all),
                BlockTier::Host => held.host += 1,
                BlockTier::Disk => held.disk += 1,
            }
            held.all += 1;
        }
        held
    }

    /// Returns where the worker has the block.
    pub(super) fn place(&self, block: BlockHash) -> Option<BlockTier> {
        self.nodes.get(&block)?.place
    }

    /// The block is here, and is used.
    pub(super) fn put(&mut self, link: BlockLink, place: BlockTier) {
        self.newest += 1;
        self.set(link, place, self.newest);
    }

    /// The block is here, which is no use of it: one that was not here goes before all others.
    pub(super) fn lower(&mut self, link: BlockLink, place: BlockTier) {
        let known = self.nodes.get(&link.hash).filter(|node| node.place.is_some()).map(|node| node.used);
        let used = known.unwrap_or_else(|| {
            self.oldest -= 1;
            self.oldest
        });
        self.set(link, place, used);
    }

    /// The block, if it is here, is used where it is.
    pub(super) fn touch(&mut self, link: BlockLink) {
        if let Some(place) = self.place(link.hash) {
            self.put(link, place);
        }
    }

    /// The block is not here any more. Blocks that continue it stay, for it may come back.
    pub(super) fn remove(&mut self, block: BlockHash) {
        let Some(node) = self.nodes.get_mut(&block).filter(|node| node.place.is_some()) else { return };
        let Node { used, parent, place, children, on_device, .. } = *node;
        (node.place, node.parent) = (None, None);
        self.len -= 1;
        let was = place == Some(BlockTier::Device);
        if was {
            self.upturned += on_device as usize;
        }
        if children == 0 {
            self.leaves.remove(&(used, block));
            self.nodes.remove(&block);
        }
        if let Some(parent) = parent {
            self.count_on_device(parent, was, false);
            self.lose_child(parent);
        }
    }

    /// The leaf that goes first, but for `spared`.
    pub(super) fn first_leaf(&self, spared: Option<BlockHash>) -> Option<BlockHash> {
        self.leaves.iter().map(|&(_, block)| block).find(|&block| Some(block) != spared)
    }

    fn set(&mut self, BlockLink { parent, hash }: BlockLink, place: BlockTier, used: i64) {
        let continues = self.nodes.get(&hash).and_then(|node| node.parent).or(parent);
        let depth = continues.map_or(1, |parent| match self.nodes.get(&parent) {
            Some(node) if node.depth > 0 => node.depth.saturating_add(1),
            _ => 0,
        });
        let node = self.nodes.entry(hash).or_default();
        let before = *node;
        // Blocks that continue it do not know that it lost its place.
        self.upturned += usize::from(before.children > 0 && depth < before.depth);
        // It never changes which block one continues; it may not have been known.
        *node = Node { used, parent: continues, place: Some(place), depth, ..before };
        if before.place.is_none() {
            self.len += 1;
        }
        if before.children == 0 {
            self.leaves.remove(&(before.used, hash));
            self.leaves.insert((used, hash));
        }
        let (was, is) = (before.place == Some(BlockTier::Device), place == BlockTier::Device);
        match (was, is) {
            (true, false) => self.upturned += before.on_device as usize,
            (false, true) => self.upturned -= before.on_device as usize,
            _ => {}
        }
        if let Some(parent) = continues {
            if before.parent.is_none() {
                self.gain_child(parent);
            }
            self.count_on_device(parent, was && before.parent.is_some(), is);
        }
    }

    /// A block that continues `parent` was on the device, or not, and is now.
    fn count_on_device(&mut self, parent: BlockHash, was: bool, is: bool) {
        let node = self.nodes.get_mut(&parent).expect("a block that is continued has a node");
        let counted = if node.place == Some(BlockTier::Device) { 0 } else { 1 };
        match (was, is) {
            (true, false) => (node.on_device, self.upturned) = (node.on_device - 1, self.upturned - counted),
            (false, true) => (node.on_device, self.upturned) = (node.on_device + 1, self.upturned + counted),
            _ => {}
        }
    }

    fn gain_child(&mut self, parent: BlockHash) {
        let node = self.nodes.entry(parent).or_default();
        node.children += 1;
        self.leaves.remove(&(node.used, parent));
    }

    fn lose_child(&mut self, parent: BlockHash) {
        let node = self.nodes.get_mut(&parent).expect("a block that is continued has a node");
        node.children -= 1;
        match *node {
            Node { children: 0, place: Some(_), used, .. } => {
                self.leaves.insert((used, parent));
            }
            Node { children: 0, place: None, .. } => {
                self.nodes.remove(&parent);
            }
            _ => {}
        }
    }
}
