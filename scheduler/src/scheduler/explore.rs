//! What a scheduler's future depends on, for the test that visits all states.

use super::Scheduler;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

impl Scheduler {
    /// Feeds everything that its future depends on, but for its limits and when requests arrived, of which the
    /// order counts. So much memory was given back until now.
    pub fn digest(&self, given_back: u64, hasher: &mut impl Hasher) {
        for (_, job) in self.waiting.iter() {
            (job.key, discriminant(&job.kind), job.tokens, job.samples).hash(hasher);
        }
        for prompt in &self.prompts {
            (prompt.job.key, prompt.job.tokens, prompt.job.samples, prompt.computed).hash(hasher);
        }
        self.decoding.iter().for_each(|((_, key), known)| (key, known).hash(hasher));
        self.in_flight.iter().collect::<BTreeMap<_, _>>().hash(hasher);
        self.taking_over.iter().collect::<BTreeMap<_, _>>().hash(hasher);
        self.short.filter(|(_, count)| *count == given_back).is_some().hash(hasher);
        (self.settled == Some(given_back)).hash(hasher);
    }
}
