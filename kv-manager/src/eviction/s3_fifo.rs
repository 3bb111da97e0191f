//! S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: FIFO queues are all you need for cache eviction, SOSP 2023): what is
//! used once passes through a small queue and goes early; what is used again, or is computed again soon after it
//! went, lives in the main one.
//!
//! Two things differ from the paper. It leaves a block where it is when it is used, counts the use, and gives it
//! another round when it is the oldest. Here a block in use is in no queue, since it may not go, and comes back at
//! the newest end of the main queue at once: that is its round, so nothing is left to be counted. It also keeps
//! blocks together that are used together: the tail of a prefix, which comes first, goes first. And the small
//! queue is larger than the paper's tenth, because a conversation that pauses sends all blocks of a turn at once.
//! docs/performance/lab/eviction.md has the figures.
//!
//! Every operation takes constant time, and none allocates.

use super::Eviction;
use super::ghosts::Ghosts;
use super::queue::Queue;
use domain::{BlockHash, BlockId};

/// While the small queue has more than one in so many of the blocks that may go, it gives them up.
const SMALL_ONE_IN: u32 = 4;

/// Where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeState {
    /// It holds nothing that was ever in.
    Unknown,
    Small,
    Main,
    /// It was in, and is used again.
    Used,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct Node {
    place: NodeState,
    /// What it holds, unless it is unknown.
    hash: BlockHash,
}

/// What is known of a block whose memory is given to a new use.
const NOTHING: Node = Node { place: NodeState::Unknown, hash: BlockHash([0; 16]) };

/// The two queues and the identities that went.
#[derive(Clone, Debug)]
pub(super) struct S3Fifo {
    nodes: Vec<Node>,
    small: Queue,
    main: Queue,
    /// What went from the small queue: as many identities as the pool has blocks.
    ghosts: Ghosts,
}

impl S3Fifo {
    /// Makes the policy of an empty pool of `blocks` blocks.
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            nodes: vec![NOTHING; blocks as usize],
            small: Queue::new(blocks),
            main: Queue::new(blocks),
            ghosts: Ghosts::new(blocks),
        }
    }

    fn node(&mut self, slot: u32) -> &mut Node {
        &mut self.nodes[slot as usize]
    }
}

impl Eviction for S3Fifo {
    fn insert(&mut self, block: BlockId, hash: BlockHash, _: Option<BlockHash>) {
        let slot = block.0;
        let known = *self.node(slot);
        assert!(matches!(known.place, NodeState::Unknown | NodeState::Used), "{block} is in already");
        assert!(known.place == NodeState::Unknown || known.hash == hash, "{block} came back as another");
        let again = known.place == NodeState::Used || self.ghosts.take(hash);
        let (place, queue) =
            if again { (NodeState::Main, &mut self.main) } else { (NodeState::Small, &mut self.small) };
        queue.push(slot);
        *self.node(slot) = Node { place, hash };
    }

    fn remove(&mut self, block: BlockId) {
        match std::mem::replace(&mut self.node(block.0).place, NodeState::Used) {
            NodeState::Small => self.small.remove(block.0),
            NodeState::Main => self.main.remove(block.0),
            NodeState::Unknown | NodeState::Used => panic!("{block} is not in"),
        }
    }

    fn pop(&mut self) -> Option<BlockId> {
        let small_first = self.small.len() > self.len() / SMALL_ONE_IN;
        let slot = if small_first { self.small.pop() } else { self.main.pop() }?;
        let node = std::mem::replace(self.node(slot), NOTHING);
        if small_first {
            self.ghosts.remember(node.hash);
        }
        Some(BlockId(slot))
    }

    fn forget(&mut self, block: BlockId) {
        let node = std::mem::replace(self.node(block.0), NOTHING);
        match node.place {
            NodeState::Small => {
                self.small.remove(block.0);
                self.ghosts.remember(node.hash);
            }
            NodeState::Main => self.main.remove(block.0),
            NodeState::Unknown | NodeState::Used => panic!("{block} is not in"),
        }
    }

    fn len(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    fn block_bytes(&self) -> usize {
        size_of::<Node>() + 2 * Queue::SLOT_BYTES + Ghosts::GHOST_BYTES
    }

    fn boxed_clone(&self) -> Box<dyn Eviction> {
        Box::new(self.clone())
    }
}
