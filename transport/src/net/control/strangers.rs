//! Connections whose other ends have not proven themselves: how many there may be, and which one gives way to the next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Connections whose other ends have not proven themselves; one more closes the oldest of them.
///
/// How long one lives while strangers connect at full pace: the control thread accepts and closes at most some
/// 50,000 a second, so one that has said nothing yet gives way after 2,048 others at the earliest, which is 40 ms.
/// Its hello comes half a round trip after it was accepted. From then on it gives way only to others that knocked,
/// which strangers cannot do, and has [`STRANGER_MAX`] in all for the other round trip. A dialer whose connection
/// gave way all the same tries again.
pub(super) const STRANGERS_MAX: usize = 4096;
/// Of the descriptors that the process may have, one in so many may be a stranger's.
pub(super) const DESCRIPTORS_SHARE: usize = 4;
/// How long a stranger has to prove itself.
pub(super) const STRANGER_MAX: Duration = Duration::from_secs(5);

/// Connections by number, so the oldest first, each with the time when it is closed.
pub(super) struct Strangers {
    places: usize,
    /// They have said nothing.
    silent: BTreeMap<u64, Instant>,
    /// They knocked.
    greeted: BTreeMap<u64, Instant>,
}

impl Strangers {
    /// Room for as many as the process may well have, which may have so many open files. `None`: any number.
    pub(super) fn new(descriptors: Option<u64>) -> Self {
        let share =
            descriptors.map_or(STRANGERS_MAX, |most| usize::try_from(most).unwrap_or(usize::MAX) / DESCRIPTORS_SHARE);
        Self { places: share.clamp(2, STRANGERS_MAX), silent: BTreeMap::new(), greeted: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.silent.len() + self.greeted.len()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.silent.contains_key(&number) || self.greeted.contains_key(&number)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.places
    }

    /// Somebody connected at `now`. Numbers grow.
    pub(super) fn enter(&mut self, number: u64, now: Instant) {
        self.silent.insert(number, now + STRANGER_MAX);
    }

    /// One knocked.
    pub(super) fn greet(&mut self, number: u64) {
        if let Some(until) = self.silent.remove(&number) {
            self.greeted.insert(number, until);
        }
    }

    /// One is no stranger any more, or is closed.
    pub(super) fn remove(&mut self, number: u64) {
        if self.silent.remove(&number).is_none() {
            self.greeted.remove(&number);
        }
    }

    /// The one that gives way: the oldest that has said nothing, or that knocked, where those have more than half
    /// of all places.
    pub(super) fn oldest(&self) -> Option<u64> {
        let (silent, greeted) = (self.silent.keys().next(), self.greeted.keys().next());
        let oldest = if self.greeted.len() > self.places / 2 { greeted.or(silent) } else { silent.or(greeted) };
        oldest.copied()
    }

    /// One whose time is over.
    pub(super) fn late(&self, now: Instant) -> Option<u64> {
        let first =
            |some: &BTreeMap<u64, Instant>| some.first_key_value().filter(|(_, until)| **until <= now).map(|(&n, _)| n);
        first(&self.silent).or_else(|| first(&self.greeted))
    }

    /// Returns when the time of the next one is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [&self.silent, &self.greeted].into_iter().filter_map(|some| some.values().next()).min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn full(places: u64) -> (Strangers, Instant) {
        let (mut strangers, begin) = (Strangers::new(Some(places * DESCRIPTORS_SHARE as u64)), now());
        (0..places).for_each(|number| strangers.enter(number, begin));
        assert!(strangers.is_full());
        (strangers, begin)
    }

    /// Another one comes while all places are taken. The one that gives way.
    fn comes(strangers: &mut Strangers, number: u64, now: Instant) -> u64 {
        let oldest = strangers.oldest().expect("all places are taken");
        strangers.remove(oldest);
        strangers.enter(number, now);
        oldest
    }

    #[test]
    fn the_oldest_that_is_silent_gives_way_and_one_that_knocked_stays() {
        let (mut strangers, now) = full(4);
        strangers.greet(0);
        assert_eq!((4..8).map(|number| comes(&mut strangers, number, now)).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(strangers.contains(0));
    }

    #[test]
    fn those_that_knocked_leave_half_of_the_places_to_others() {
        let (mut strangers, now) = full(4);
        (0..4).for_each(|number| strangers.greet(number));
        let gone: Vec<_> = (4..8).map(|number| comes(&mut strangers, number, now)).collect();
        assert_eq!(gone, [0, 1, 4, 5]);
    }

    #[test]
    fn each_has_the_same_time() {
        let (mut strangers, begin) = full(4);
        let next = Duration::from_secs(1);
        strangers.remove(3);
        strangers.enter(4, begin + next);
        strangers.greet(1);
        assert_eq!(strangers.deadline(), Some(begin + STRANGER_MAX));
        assert_eq!(strangers.late(begin + STRANGER_MAX - next), None);
        for number in [0, 2, 1] {
            assert_eq!(strangers.late(begin + STRANGER_MAX), Some(number));
            strangers.remove(number);
        }
        assert_eq!(strangers.late(begin + STRANGER_MAX), None);
        assert_eq!((strangers.deadline(), strangers.len()), (Some(begin + next + STRANGER_MAX), 1));
    }

    #[test]
    fn a_process_with_few_descriptors_keeps_most_of_them() {
        assert_eq!(Strangers::new(Some(1024)).places, 256);
        assert_eq!(Strangers::new(None).places, STRANGERS_MAX);
        assert_eq!(Strangers::new(Some(0)).places, 2);
    }
}
