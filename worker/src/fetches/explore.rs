//! What fetches' future depends on, for the test that visits all states.

use super::Fetches;
use domain::Time;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

impl Fetches {
    /// Feeds everything that their future depends on. Times count from `now`.
    pub fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        for (id, entry) in &self.open {
            entry.machine.digest(now, hasher);
            (id, entry.owner, entry.key, entry.kind as u8, entry.choices, &entry.missing).hash(hasher);
            (entry.unposted.len(), &entry.transfers, entry.cancelling, entry.cancelled, entry.failed_here).hash(hasher);
            (entry.asked, entry.tokens, entry.held, entry.completed.is_some()).hash(hasher);
        }
        self.leases.hash(hasher);
        self.transfers.iter().collect::<BTreeMap<_, _>>().hash(hasher);
        self.early.digest(now, hasher);
    }
}
