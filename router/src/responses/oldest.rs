//! The oldest of all objects of a store, and the bytes of all.

use object_store::ObjectMeta;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Most objects that a listing remembers. Above: the newest of them are forgotten; a later listing finds them.
const REMEMBERED_MAX: usize = 1 << 16;
/// What a small object counts, as most file systems have it. So the bound on bytes bounds the number of objects, too.
const OBJECT_BYTES_MIN: u64 = 4096;

/// What is left of a listing.
#[derive(Default)]
pub(super) struct Oldest {
    /// Bytes of all objects, remembered or not.
    bytes: u64,
    /// The newest is on top.
    remembered: BinaryHeap<ByAge>,
}

/// An object, ordered by when it was written.
struct ByAge(ObjectMeta);

impl Oldest {
    /// Adds an object.
    pub(super) fn add(&mut self, object: ObjectMeta) {
        self.bytes += cost(object.size);
        self.remembered.push(ByAge(object));
        if self.remembered.len() > REMEMBERED_MAX {
            self.remembered.pop();
        }
    }

    /// Returns the bytes of all objects, and the remembered ones, the oldest first.
    pub(super) fn in_order(self) -> (u64, Vec<ObjectMeta>) {
        let objects = self.remembered.into_sorted_vec().into_iter().map(|ByAge(object)| object);
        (self.bytes, objects.collect())
    }
}

/// Returns what an object of so many bytes counts.
pub(super) fn cost(bytes: u64) -> u64 {
    bytes.max(OBJECT_BYTES_MIN)
}

impl Ord for ByAge {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.last_modified.cmp(&other.0.last_modified)
    }
}

impl PartialOrd for ByAge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByAge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByAge {}
