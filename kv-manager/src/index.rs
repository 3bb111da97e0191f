//! The prefix index: which cached or used block of each group holds the bytes of an identity, and what changed since
//! routers were last told.
//!
//! An identity has at most one indexed block per group. Finding how long a prefix is usable needs the windows and
//! is the manager's; which block goes when room is needed is the eviction policy's.

use crate::change_tracking_map::ChangeTrackingMap;
use domain::{BlockHash, BlockId, GroupId};
use std::collections::BTreeSet;

/// Identities and the blocks that hold them, per group.
///
/// To the outside an identity is *held* when every full group indexes it, or, for a model whose groups all have
/// windows, when every group does. With mixed groups that is an upper estimate (a windowed group may have evicted
/// its part); opening a sequence looks at all groups and decides.
#[derive(Clone, Debug)]
pub(crate) struct PrefixIndex {
    groups: Vec<ChangeTrackingMap<BlockId>>,
    /// The groups that decide whether an identity counts as held.
    counting: Vec<usize>,
}

/// An identity of which a group that counts got a block, or lost it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) hash: BlockHash,
    /// Whether it was held before.
    pub(crate) was_held: bool,
}

impl PrefixIndex {
    /// Makes an empty index; `windowed` says for each group whether it has a window.
    pub(crate) fn new(windowed: &[bool]) -> Self {
        let mut counting: Vec<usize> = (0..windowed.len()).filter(|&group| !windowed[group]).collect();
        if counting.is_empty() {
            counting = (0..windowed.len()).collect();
        }
        Self { groups: vec![ChangeTrackingMap::default(); windowed.len()], counting }
    }

    /// Returns the block of `group` that holds `hash`.
    pub(crate) fn get(&self, group: GroupId, hash: BlockHash) -> Option<BlockId> {
        self.groups[usize::from(group.0)].get(&hash).copied()
    }

    /// Enters a block. `false`: another block of the group holds the identity already, and stays.
    pub(crate) fn insert(&mut self, group: GroupId, hash: BlockHash, block: BlockId) -> bool {
        let group = usize::from(group.0);
        if self.groups[group].contains_key(&hash) {
            return false;
        }
        self.groups[group].insert(hash, block);
        true
    }

    /// Takes a block out, which is in.
    pub(crate) fn remove(&mut self, group: GroupId, hash: BlockHash) {
        let group = usize::from(group.0);
        let removed = self.groups[group].remove(&hash);
        assert!(removed.is_some(), "{hash:?} is not in the index of group {group}");
    }

    /// Takes what changed since the last call, sorted.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let counting = || self.counting.iter().map(|&group| &self.groups[group]);
        let changed: BTreeSet<BlockHash> = counting().flat_map(ChangeTrackingMap::changed).collect();
        let was_held = |hash: &BlockHash| counting().all(|group| group.was_in(hash));
        let changes = changed.into_iter().map(|hash| Change { hash, was_held: was_held(&hash) }).collect();
        for group in &mut self.groups {
            group.take_changed(usize::MAX).for_each(|_| {});
        }
        changes
    }

    /// Returns the groups that decide whether an identity counts as held.
    pub(crate) fn counting(&self) -> impl Iterator<Item = GroupId> {
        self.counting.iter().map(|&group| GroupId(group as u16))
    }

    /// Returns all identities held, in no order.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = BlockHash> {
        let first = self.counting.first().map(|&first| self.groups[first].keys());
        first.into_iter().flatten().filter(|hash| self.held(hash)).copied()
    }

    /// Returns the number of entries of one group.
    pub(crate) fn len(&self, group: GroupId) -> usize {
        self.groups[usize::from(group.0)].len()
    }

    /// Returns about how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.iter().map(ChangeTrackingMap::bytes).sum()
    }

    /// Returns the most bytes that it can take over pools of so many blocks in all.
    pub(crate) fn bytes_max(blocks: usize) -> usize {
        ChangeTrackingMap::<BlockId>::bytes_max(blocks)
    }

    /// Returns whether the identity is held.
    pub(crate) fn held(&self, hash: &BlockHash) -> bool {
        self.counting.iter().all(|&group| self.groups[group].contains_key(hash))
    }
}
