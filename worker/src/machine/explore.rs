//! What a machine's future depends on, for the test that visits all states.

use super::Machine;
use domain::Time;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

impl Machine {
    /// Feeds everything that the machine's future depends on, except for its role, its surroundings and reports. Times
    /// count from `now`. Assumes that there are no tiers, that sessions take what is sent, that deadlines of requests
    /// are far away, and that the machine was not left alone for long. It makes no difference which slots of the device
    /// sequences have.
    pub fn digest(&self, now: Time, hasher: &mut impl Hasher) {
        let core = &self.core;
        core.kv.digest(now, hasher);
        core.scheduler.digest(core.kv.given_back(), hasher);
        for (key, sequence) in core.sequences.iter().collect::<BTreeMap<_, _>>() {
            (key, sequence.tokens.prompt(), sequence.tokens.output(), sequence.fetching, sequence.closing).hash(hasher);
        }
        core.attempts.iter().for_each(|(request, epoch, attempt)| (request, epoch, &attempt.live).hash(hasher));
        core.in_steps.iter().for_each(|it| it.hash(hasher));
        core.copies.iter().for_each(|(key, copy)| (key, copy.from, copy.to).hash(hasher));
        (&core.lives, core.draining, self.last_step, self.step_ended, self.retry.is_some()).hash(hasher);
        let running = self.in_flight.iter().flat_map(|step| &step.work);
        running.for_each(|work| (work.key, work.start, work.count).hash(hasher));
        self.last_awake.map(|awake| now.since(awake)).hash(hasher);
        self.offers.digest(now, hasher);
        self.fetches.digest(now, hasher);
    }
}
