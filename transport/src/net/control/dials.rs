//! Chooses the peer that is connected next.

use crate::agent::peers::Attempt;
use std::collections::VecDeque;

/// Peers that are being connected, or compared, at once; others wait their turn.
const DIALS_MAX: usize = 8;
/// Of those, peers that could not be connected the last time, so that however many of them there are others have a
/// place.
const DIALS_AGAIN_MAX: usize = DIALS_MAX / 2;

/// Peers that are being connected, and those that wait for it.
#[derive(Default)]
pub(super) struct Dials {
    waiting: VecDeque<Attempt>,
    under_way: usize,
    /// Of those under way, attempts after one that failed.
    again: usize,
}

impl Dials {
    pub(super) fn wait(&mut self, attempt: Attempt) {
        self.waiting.push_back(attempt);
    }

    /// Takes the attempt that has waited longest, of those that have a place. Once it begins, that is to be told.
    pub(super) fn next(&mut self) -> Option<Attempt> {
        if self.is_full() {
            return None;
        }
        let has_place = |attempt: &Attempt| !attempt.again || self.again < DIALS_AGAIN_MAX;
        self.waiting.remove(self.waiting.iter().position(has_place)?)
    }

    pub(super) fn is_full(&self) -> bool {
        self.under_way == DIALS_MAX
    }

    /// One begins; `again`: after one that failed.
    pub(super) fn begin(&mut self, again: bool) {
        self.under_way += 1;
        self.again += usize::from(again);
    }

    pub(super) fn end(&mut self, again: bool) {
        self.under_way -= 1;
        self.again -= usize::from(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::known_peer::KnownPeer;
    use domain::session::PeerAddress;
    use domain::{Incarnation, WorkerId};

    fn attempt(id: u32, again: bool) -> Attempt {
        let (id, incarnation, address) = (WorkerId(id), Incarnation(1), PeerAddress::default());
        Attempt { peer: KnownPeer { id, incarnation, name: String::new(), address }, number: 0, again }
    }

    /// Begins all that have a place.
    fn begin(dials: &mut Dials) -> Vec<u32> {
        let next = || {
            let attempt = dials.next()?;
            dials.begin(attempt.again);
            Some(attempt.peer.id.0)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn peers_that_fail_again_and_again_keep_no_other_waiting() {
        let mut dials = Dials::default();
        (0..20).for_each(|id| dials.wait(attempt(id, true)));
        assert_eq!(begin(&mut dials), [0, 1, 2, 3]);
        (20..30).for_each(|id| dials.wait(attempt(id, false)));
        assert_eq!(begin(&mut dials), [20, 21, 22, 23]);
        // Each that ends makes room for its like, and in all there are no more.
        dials.end(true);
        assert_eq!(begin(&mut dials), [4]);
        dials.end(false);
        assert_eq!(begin(&mut dials), [24]);
        assert!(dials.is_full());
    }
}
