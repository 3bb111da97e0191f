//! Where the bytes of each identity are, in one place and group, and of which identities that changed since it was
//! last asked.

use domain::{BlockHash, ByIdentity};
use std::collections::{BTreeSet, HashMap};

/// Identities and where their bytes are.
#[derive(Clone, Debug)]
pub(crate) struct ChangeTrackingMap<V> {
    entries: HashMap<BlockHash, V, ByIdentity>,
    /// Identities that are in and were not, or were in and are not, when they were taken last. So there are no more
    /// than twice as many as there is room for, however long they are not taken.
    changed: BTreeSet<BlockHash>,
}

impl<V> Default for ChangeTrackingMap<V> {
    fn default() -> Self {
        Self { entries: HashMap::default(), changed: BTreeSet::new() }
    }
}

impl<V> ChangeTrackingMap<V> {
    /// What an identity takes that is in: in a map that is half full.
    const ENTRY_BYTES: usize = 2 * size_of::<(BlockHash, V)>();
    /// Bytes of an identity whose coming or going was not reported yet: in a tree that is half full.
    const CHANGED_BYTES: usize = 2 * size_of::<BlockHash>();

    /// Returns about how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        Self::ENTRY_BYTES * self.entries.len() + Self::CHANGED_BYTES * self.changed.len()
    }

    /// Returns the most bytes that a map with room for so many identities takes.
    pub(crate) fn bytes_max(room: usize) -> usize {
        (Self::ENTRY_BYTES + 2 * Self::CHANGED_BYTES) * room
    }

    pub(crate) fn get(&self, hash: &BlockHash) -> Option<&V> {
        self.entries.get(hash)
    }

    pub(crate) fn contains_key(&self, hash: &BlockHash) -> bool {
        self.entries.contains_key(hash)
    }

    pub(crate) fn insert(&mut self, hash: BlockHash, at: V) {
        if self.entries.insert(hash, at).is_none() {
            self.change(hash);
        }
    }

    /// Removes an identity and returns its value, if it was in.
    pub(crate) fn remove(&mut self, hash: &BlockHash) -> Option<V> {
        let at = self.entries.remove(hash)?;
        self.change(*hash);
        Some(at)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &BlockHash> {
        self.entries.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the identity was in when changes were last taken.
    pub(crate) fn was_in(&self, hash: &BlockHash) -> bool {
        self.contains_key(hash) != self.changed.contains(hash)
    }

    /// Takes the identities that changed, sorted.
    pub(crate) fn changed(&self) -> impl Iterator<Item = BlockHash> {
        self.changed.iter().copied()
    }

    /// Takes so many of the identities that changed, at most.
    pub(crate) fn take_changed(&mut self, max: usize) -> impl Iterator<Item = BlockHash> {
        (0..max).map_while(|_| self.changed.pop_first())
    }

    fn change(&mut self, hash: BlockHash) {
        // A change that undoes one leaves nothing to tell.
        if !self.changed.remove(&hash) {
            self.changed.insert(hash);
        }
    }
}
