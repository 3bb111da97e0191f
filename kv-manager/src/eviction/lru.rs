//! Least recently used: a doubly linked list threaded through an array, so that every operation takes constant time and
//! none allocates.

use super::Eviction;
use domain::BlockId;

/// Neighbours of a block in the list.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Link {
    older: Option<BlockId>,
    newer: Option<BlockId>,
    inside: bool,
}

/// The list, from the oldest block (which goes first) to the newest.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    links: Vec<Link>,
    oldest: Option<BlockId>,
    newest: Option<BlockId>,
    len: u32,
}

impl Lru {
    /// An empty list for a pool of `blocks` blocks.
    pub(crate) fn new(blocks: u32) -> Self {
        Self { links: vec![Link::default(); blocks as usize], oldest: None, newest: None, len: 0 }
    }

    /// Whether the block is in the list.
    pub(crate) fn contains(&self, block: BlockId) -> bool {
        self.links[block.0 as usize].inside
    }

    fn link(&mut self, block: BlockId) -> &mut Link {
        &mut self.links[block.0 as usize]
    }
}

impl Eviction for Lru {
    fn insert(&mut self, block: BlockId) {
        let older = self.newest.replace(block);
        let link = self.link(block);
        assert!(!link.inside, "{block} is in the list already");
        *link = Link { older, newer: None, inside: true };
        match older {
            Some(older) => self.link(older).newer = Some(block),
            None => self.oldest = Some(block),
        }
        self.len += 1;
    }

    fn remove(&mut self, block: BlockId) {
        let Link { older, newer, inside } = std::mem::take(self.link(block));
        assert!(inside, "{block} is not in the list");
        match older {
            Some(older) => self.link(older).newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.link(newer).older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    fn pop(&mut self) -> Option<BlockId> {
        let block = self.oldest?;
        self.remove(block);
        Some(block)
    }

    fn len(&self) -> u32 {
        self.len
    }

    fn boxed_clone(&self) -> Box<dyn Eviction> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const BLOCKS: u32 = 12;

    proptest! {
        /// Against a queue that is searched: inserting what is out, removing what is in, popping.
        #[test]
        fn behaves_like_a_queue(ops in prop::collection::vec((0..3u8, 0..BLOCKS), 0..200)) {
            let mut lru = Lru::new(BLOCKS);
            let mut queue: VecDeque<BlockId> = VecDeque::new();
            for (op, block) in ops {
                let block = BlockId(block);
                let place = queue.iter().position(|&inside| inside == block);
                match (op, place) {
                    (0, _) => prop_assert_eq!(lru.pop(), queue.pop_front()),
                    (_, Some(place)) => {
                        lru.remove(block);
                        queue.remove(place);
                    }
                    (_, None) => {
                        lru.insert(block);
                        queue.push_back(block);
                    }
                }
                prop_assert_eq!(lru.len() as usize, queue.len());
            }
            let rest: Vec<_> = std::iter::from_fn(|| lru.pop()).collect();
            prop_assert_eq!(rest, Vec::from(queue));
        }
    }
}
