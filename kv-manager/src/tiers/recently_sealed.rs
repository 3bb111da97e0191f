//! The identities that were sealed lately.

use domain::{BlockHash, ByIdentity, GroupId};
use std::collections::{HashSet, VecDeque};

/// So many identities at most; the oldest is forgotten first.
#[derive(Clone)]
pub(super) struct RecentlySealed {
    known: HashSet<(GroupId, BlockHash), ByIdentity>,
    order: VecDeque<(GroupId, BlockHash)>,
    max: usize,
}

impl RecentlySealed {
    pub(super) fn new(max: usize) -> Self {
        Self { known: HashSet::default(), order: VecDeque::new(), max }
    }

    /// Returns whether it was not among them; it is now.
    pub(super) fn first(&mut self, group: GroupId, hash: BlockHash) -> bool {
        let first = self.known.insert((group, hash));
        if first {
            self.order.push_back((group, hash));
            if self.order.len() > self.max
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        first
    }

    /// Returns the identities that are remembered.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the most identities that may be remembered.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Asserts that the bound holds.
    pub(super) fn check(&self) {
        let Self { known, order, max } = self;
        assert!(known.len() == order.len() && order.len() <= *max, "a bound is exceeded");
    }
}
