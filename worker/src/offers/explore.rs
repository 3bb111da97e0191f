//! What offers' future depends on, for the test that visits all states.

use super::Offers;
use domain::Time;
use std::hash::{Hash, Hasher};

impl Offers {
    /// Feeds everything that their future depends on. Times count from `now`.
    pub(crate) fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        for (key, open) in &self.open {
            let taker = open.taker;
            (key, open.lease, open.announced, taker.to, taker.epoch, taker.tokens, taker.known).hash(hasher);
        }
        self.readers.iter().for_each(|(lease, reader)| (lease, reader.worker, reader.handoff).hash(hasher));
        self.asked.iter().for_each(|(key, asked)| (key, asked.from, asked.until.since(now)).hash(hasher));
    }
}
