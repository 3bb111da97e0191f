//! What a machine's future depends on, for the test that visits all states.

use super::Machine;
use domain::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

impl<R> Machine<R> {
    /// Feeds everything that its future depends on, but for its role, what it was given from outside, and reports.
    /// Times count from `now`. Taken to hold: that there are no tiers, that sessions take what is said, that
    /// deadlines of requests are far, and that it was not left alone for long.
    pub fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        let core = &self.core;
        core.kv.digest(now, hasher);
        core.scheduler.digest(core.kv.given_back(), hasher);
        for (key, sequence) in core.sequences.iter().collect::<BTreeMap<_, _>>() {
            (key, sequence.tokens.prompt(), sequence.tokens.output(), sequence.fetching, sequence.closing).hash(hasher);
        }
        core.attempts.iter().for_each(|(request, epoch, attempt)| (request, epoch, &attempt.live).hash(hasher));
        core.in_step.iter().collect::<BTreeSet<_>>().hash(hasher);
        core.copies.iter().for_each(|(key, copy)| (key, copy.from, copy.to).hash(hasher));
        (&core.lives, core.draining, self.step, self.ended, self.retry.is_some()).hash(hasher);
        let running = self.running.iter().flat_map(|running| &running.work);
        running.for_each(|work| (work.key, work.start, work.count).hash(hasher));
        self.awake.map(|awake| now.since(awake)).hash(hasher);
    }
}
