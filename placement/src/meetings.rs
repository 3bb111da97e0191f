//! Which workers have met: a router has introduced them to each other.

use domain::WorkerId;
use std::collections::{BTreeMap, BTreeSet};

/// The workers that each worker has met, without those that have left.
#[derive(Debug, Default)]
pub(crate) struct Meetings(BTreeMap<WorkerId, BTreeSet<WorkerId>>);

impl Meetings {
    /// Notes that two workers meet. Returns whether they had not met before.
    pub(crate) fn meet(&mut self, one: WorkerId, other: WorkerId) -> bool {
        self.0.entry(other).or_default().insert(one);
        self.0.entry(one).or_default().insert(other)
    }

    /// Returns the workers that a worker has met.
    pub(crate) fn of(&self, id: WorkerId) -> impl Iterator<Item = WorkerId> + '_ {
        self.0.get(&id).into_iter().flatten().copied()
    }

    /// Forgets a worker that has left. Returns the workers that it had met.
    pub(crate) fn leave(&mut self, id: WorkerId) -> BTreeSet<WorkerId> {
        let met = self.0.remove(&id).unwrap_or_default();
        for other in &met {
            if let Some(others) = self.0.get_mut(other) {
                others.remove(&id);
                if others.is_empty() {
                    self.0.remove(other);
                }
            }
        }
        met
    }
}
