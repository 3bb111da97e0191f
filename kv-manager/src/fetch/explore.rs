//! What a fetch's future depends on, for the test that visits all states.

use super::Fetch;
use super::state::{Offered, State};
use domain::Time;
use std::hash::{Hash, Hasher};

impl Fetch {
    /// Feeds everything that its future depends on, but for its configuration. Times count from `now`. Taken to
    /// hold: that the request's deadline is far.
    pub fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        (self.state() as u8, self.lease()).hash(hasher);
        [self.wait_until, self.repeat_at].map(|time| time.since(now)).hash(hasher);
        match &self.state {
            State::Expecting { asked, queued } => (asked, queued.is_some()).hash(hasher),
            State::WaitingRoom { offered, covered } => {
                offered.digest(hasher);
                covered.hash(hasher);
            }
            State::Reading { offered, room, outstanding } => {
                offered.digest(hasher);
                (room.held, outstanding).hash(hasher);
                room.tables.iter().for_each(|table| (table.first, &table.blocks).hash(hasher));
            }
            State::Answering { first, .. } => first.hash(hasher),
            State::Quiescing { owes_release, outstanding, .. } => (owes_release, outstanding).hash(hasher),
            State::Done { .. } => {}
        }
    }
}

impl Offered {
    fn digest(&self, hasher: &mut impl Hasher) {
        let offer = &self.offer;
        (offer.lease, offer.epoch, offer.duration, offer.tokens, offer.ready).hash(hasher);
        offer.groups.iter().for_each(|group| (group.first, &group.blocks).hash(hasher));
        (self.covered, &self.first).hash(hasher);
    }
}
