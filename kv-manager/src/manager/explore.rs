//! What a manager's future depends on, for the test that visits all states.

use super::KvManager;
use domain::{LeaseId, Time};
use std::hash::{Hash, Hasher};

impl KvManager {
    /// Feeds everything that its future depends on, but for its configuration, the leases
    /// ([`lease_digest`](Self::lease_digest)) and counts. Taken to hold: that neither bound of [`crate::KvConfig`] on leases
    /// and answers is reached, that no lease lives until its `until`, and that no two blocks are cached at once, whose order
    /// would count.
    pub fn digest(&self, hasher: &mut impl Hasher) {
        self.pools.iter().for_each(|pool| pool.digest(hasher));
        for (key, sequence) in &self.sequences {
            key.hash(hasher);
            (sequence.blocks, sequence.written, sequence.planned, sequence.sealed, sequence.fetched).hash(hasher);
            sequence.tables.iter().for_each(|table| (table.first, &table.blocks).hash(hasher));
            sequence.copying.iter().for_each(|copy| (copy.source, copy.start, copy.until).hash(hasher));
        }
    }

    /// Feeds what becomes of a lease. Times count from `now`.
    pub fn lease_digest(&self, now: Time, lease: LeaseId, hasher: &mut impl Hasher) {
        self.leases.was_valid(lease).hash(hasher);
        let Some(lease) = self.leases.get(lease) else { return };
        // No owner stands still there, so that both clocks are one.
        (lease.key, lease.tokens, lease.ready, lease.copied_until, lease.ticks, &lease.blocks).hash(hasher);
        (lease.expiry.since(now), lease.duration).hash(hasher);
    }
}
