//! What a fetch's future depends on, for the test that visits all states.

use super::Fetch;
use domain::Time;
use std::hash::{Hash, Hasher};

impl Fetch {
    /// Feeds everything that its future depends on, but for its configuration. Times count from `now`. Taken to
    /// hold: that the request's deadline is far.
    pub fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        (self.state as u8, self.owes_release, self.covered, &self.waiting, self.held, self.outstanding).hash(hasher);
        [self.wait_until, self.repeat_at].map(|time| time.since(now)).hash(hasher);
        (&self.complete, self.queued.is_some()).hash(hasher);
        for table in self.room.iter().flatten() {
            (table.first, &table.blocks).hash(hasher);
        }
        if let Some(offer) = &self.offer {
            (offer.lease, offer.epoch, offer.duration, offer.tokens, offer.ready).hash(hasher);
            offer.groups.iter().for_each(|group| (group.first, &group.blocks).hash(hasher));
        }
    }
}
