//! When an object tier's store is listed: in rounds of pages, every so often, and after a pause where it failed.

use std::time::{Duration, Instant};

/// Keys of a listing.
pub(super) const PAGE_KEYS: usize = 1000;
/// How long a store that failed is left alone; twice as long each time, up to the longest. Once it did well for as
/// long as that, the pauses begin anew.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When the store is listed.
pub(super) struct Rounds {
    pub(super) due: Instant,
    /// The last key of the page before; `None`: a round begins.
    pub(super) after: Option<String>,
    pub(super) listing: bool,
    /// Keys of this round.
    listed: usize,
    /// Keys of a round, at most: more are not remembered anyway.
    listed_max: usize,
    /// How long the store is left alone when it fails next.
    pause: Duration,
    /// When it was left alone last, the end of that.
    back: Instant,
    every: Duration,
}

impl Rounds {
    /// The first is due now.
    pub(super) fn new(now: Instant, listed_max: usize, every: Duration) -> Self {
        Self { due: now, after: None, listing: false, listed: 0, listed_max, pause: PAUSE_MIN, back: now, every }
    }

    /// A listing brought these keys: none, if it failed.
    pub(super) fn ended(&mut self, now: Instant, keys: &[String]) {
        self.listing = false;
        self.listed += keys.len();
        self.after = keys.last().filter(|_| keys.len() == PAGE_KEYS && self.listed < self.listed_max).cloned();
        if self.after.is_none() {
            self.listed = 0;
            self.due = now + self.every;
        }
    }

    /// The store failed. That it answers a listing does not say that it does anything else: only what it did for a
    /// while counts.
    pub(super) fn rest(&mut self, now: Instant) {
        if now > self.back + PAUSE_MAX {
            self.pause = PAUSE_MIN;
        }
        self.back = now + self.pause;
        self.due = self.back;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_whenever_it_is_back_is_left_alone_for_ever_longer() {
        let start = super::super::now();
        let every = Duration::from_secs(300);
        let mut rounds = Rounds::new(start, 2 * PAGE_KEYS, every);
        let page = vec!["a".to_owned(); PAGE_KEYS];
        let mut at = start;
        for round in 0..10 {
            rounds.rest(at);
            let pause = rounds.due - at;
            assert_eq!(pause, (PAUSE_MIN * (1 << round)).min(PAUSE_MAX), "round {round}");
            // It lists what it has, and takes nothing.
            at = rounds.due;
            rounds.ended(at, &page);
            assert_eq!((rounds.due, rounds.after.is_some()), (at, true), "the next page is due at once");
            rounds.ended(at, &[]);
            assert_eq!((rounds.due, rounds.after.is_some()), (at + every, false));
        }
        at += PAUSE_MAX + Duration::from_millis(1);
        rounds.rest(at);
        assert_eq!(rounds.due - at, PAUSE_MIN, "it did well for a while");
    }
}
