//! The prefix index: which cached or used block of each group holds the bytes of an identity, and what changed since
//! placement was last told.
//!
//! An identity has at most one indexed block per group. Finding how long a prefix is usable needs the windows and is the
//! manager's; which block goes when room is needed is the eviction policy's.

use domain::{BlockHash, BlockId, GroupId};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

/// Hashed with fixed keys: the same calls leave the same state in every run.
type BlockMap = HashMap<BlockHash, BlockId, BuildHasherDefault<DefaultHasher>>;

/// Identities and the blocks that hold them, per group.
///
/// To the outside an identity is *held* when every full group indexes it, or, for a model whose groups all have windows,
/// when every group does. With mixed groups that is an upper estimate (a windowed group may have evicted
/// its part); opening a sequence looks at all groups and decides.
#[derive(Clone, Debug)]
pub(crate) struct PrefixIndex {
    groups: Vec<BlockMap>,
    /// The groups that decide whether an identity counts as held.
    counting: Vec<usize>,
    /// Net changes of what is held since the last take: added (`true`) or removed. Bounded by twice the pool: what was
    /// added is held now, what was removed was held at the last take.
    changes: BTreeMap<BlockHash, bool>,
}

impl PrefixIndex {
    /// An empty index; `windowed` says for each group whether it has a window.
    pub(crate) fn new(windowed: &[bool]) -> Self {
        let mut counting: Vec<usize> = (0..windowed.len()).filter(|&group| !windowed[group]).collect();
        if counting.is_empty() {
            counting = (0..windowed.len()).collect();
        }
        Self { groups: vec![BlockMap::default(); windowed.len()], counting, changes: BTreeMap::new() }
    }

    /// The block of `group` that holds `hash`.
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
        if self.counting.contains(&group) && self.held(&hash) {
            self.change(hash, true);
        }
        true
    }

    /// Takes a block out, which is in.
    pub(crate) fn remove(&mut self, group: GroupId, hash: BlockHash) {
        let group = usize::from(group.0);
        if self.counting.contains(&group) && self.held(&hash) {
            self.change(hash, false);
        }
        let removed = self.groups[group].remove(&hash);
        assert!(removed.is_some(), "{hash:?} is not in the index of group {group}");
    }

    /// What became held and what ceased to be held since the last call, each sorted.
    pub(crate) fn take_changes(&mut self) -> (Vec<BlockHash>, Vec<BlockHash>) {
        let (added, removed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.changes).into_iter().partition(|change| change.1);
        let hashes = |changes: Vec<(BlockHash, bool)>| changes.into_iter().map(|(hash, _)| hash).collect();
        (hashes(added), hashes(removed))
    }

    /// All identities held, sorted.
    pub(crate) fn all_held(&self) -> Vec<BlockHash> {
        let Some(&first) = self.counting.first() else { return Vec::new() };
        let mut hashes: Vec<_> = self.groups[first].keys().filter(|hash| self.held(hash)).copied().collect();
        hashes.sort_unstable();
        hashes
    }

    /// Entries of one group.
    pub(crate) fn len(&self, group: GroupId) -> usize {
        self.groups[usize::from(group.0)].len()
    }

    fn held(&self, hash: &BlockHash) -> bool {
        self.counting.iter().all(|&group| self.groups[group].contains_key(hash))
    }

    fn change(&mut self, hash: BlockHash, added: bool) {
        // A change that undoes one not told yet leaves nothing to tell.
        if self.changes.remove(&hash).is_none() {
            self.changes.insert(hash, added);
        }
    }
}
