//! What a manager's future depends on, for the test that visits all states.

use super::KvManager;
use domain::Time;
use std::hash::{Hash, Hasher};

impl KvManager {
    /// Feeds everything that its future depends on, but for its configuration and counts. Times count from `now`.
    /// Taken to hold: that neither bound of [`crate::KvConfig`] on leases and answers is reached, that no lease
    /// lives until its `until`, and that the order in which blocks go makes no difference. Nor does what the device was
    /// told.
    pub fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        self.pools.iter().for_each(|pool| pool.digest(hasher));
        for (key, sequence) in &self.sequences {
            key.hash(hasher);
            (sequence.blocks, sequence.written, sequence.planned, sequence.sealed, sequence.fetched).hash(hasher);
            sequence.tables.iter().for_each(|table| (table.first, &table.blocks).hash(hasher));
            sequence.ends.hash(hasher);
            sequence.copying.iter().for_each(|copy| (copy.source, copy.start, copy.until).hash(hasher));
        }
        self.leases.digest(now, hasher);
    }
}
