//! Which sequences the steps in flight contain.

use domain::SeqKey;
#[cfg(feature = "explore")]
use std::collections::BTreeMap;
use std::collections::HashMap;

/// The sequences in the steps in flight, each with the number of these steps. The blocks of a sequence must not be
/// freed while it is here.
#[derive(Debug, Default)]
pub(crate) struct InSteps(HashMap<SeqKey, u32>);

impl InSteps {
    /// Notes that a step with the sequence was submitted.
    pub(crate) fn enter(&mut self, key: SeqKey) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Notes that a step with the sequence ended.
    pub(crate) fn leave(&mut self, key: SeqKey) {
        if let Some(steps) = self.0.get_mut(&key) {
            *steps -= 1;
            if *steps == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Returns whether a step in flight contains the sequence.
    pub(crate) fn contains(&self, key: SeqKey) -> bool {
        self.0.contains_key(&key)
    }

    /// Returns the number of sequences.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the sequences in order, each with the number of steps.
    #[cfg(feature = "explore")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SeqKey, u32)> {
        self.0.iter().map(|(&key, &steps)| (key, steps)).collect::<BTreeMap<_, _>>().into_iter()
    }
}
