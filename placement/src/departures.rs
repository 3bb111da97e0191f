//! Workers that were lost, until it is told that they left: one that comes back soon is missed by nobody.

use domain::{Incarnation, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A worker that was lost and is not back after so long has left.
pub const LEFT_AFTER: Duration = Duration::from_secs(60);

/// Workers that were lost and did not come back.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    lives: BTreeMap<WorkerId, (Time, Incarnation)>,
    /// The same, by when they will have left.
    due: BTreeSet<(Time, WorkerId)>,
}

impl Departures {
    /// A worker was lost.
    pub(crate) fn lost(&mut self, now: Time, id: WorkerId, life: Incarnation) {
        self.returned(id);
        self.lives.insert(id, (now + LEFT_AFTER, life));
        self.due.insert((now + LEFT_AFTER, id));
    }

    /// It is back, or it is told already that it left.
    pub(crate) fn returned(&mut self, id: WorkerId) {
        if let Some((due, _)) = self.lives.remove(&id) {
            self.due.remove(&(due, id));
        }
    }

    /// Takes one that has left by now.
    pub(crate) fn next(&mut self, now: Time) -> Option<(WorkerId, Incarnation)> {
        let &(_, id) = self.due.first().filter(|(due, _)| *due <= now)?;
        let (_, life) = *self.lives.get(&id)?;
        self.returned(id);
        Some((id, life))
    }

    /// Returns when the next one will have left.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|&(due, _)| due)
    }
}
