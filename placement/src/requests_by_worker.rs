//! Which requests each worker takes part in: the loss of a worker costs what that worker does, not what all do.

use domain::{RequestId, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// The workers that take part in a request, and whether it needs each: to make tokens, or to be read from.
pub(crate) type InvolvedWorkers = [Option<(WorkerId, bool)>; 4];

/// The requests of all workers.
#[derive(Debug, Default)]
pub(crate) struct RequestsByWorker {
    requests: BTreeSet<(WorkerId, RequestId)>,
    /// How many of them need the worker; none of them is 0.
    needs: BTreeMap<WorkerId, u32>,
}

impl RequestsByWorker {
    /// Replaces the workers of a request, `before`, by `now`. No worker is twice in either.
    pub(crate) fn update(&mut self, request: RequestId, before: &InvolvedWorkers, now: &InvolvedWorkers) {
        for (worker, needed) in before.iter().copied().flatten() {
            self.requests.remove(&(worker, request));
            if needed && let Some(needs) = self.needs.get_mut(&worker) {
                *needs -= 1;
                if *needs == 0 {
                    self.needs.remove(&worker);
                }
            }
        }
        for (worker, needed) in now.iter().copied().flatten() {
            self.requests.insert((worker, request));
            if needed {
                *self.needs.entry(worker).or_default() += 1;
            }
        }
    }

    /// Returns the requests of a worker, by id.
    pub(crate) fn of(&self, worker: WorkerId) -> Vec<RequestId> {
        let all = (worker, RequestId(0))..=(worker, RequestId(u64::MAX));
        self.requests.range(all).map(|&(_, request)| request).collect()
    }

    /// Returns whether any request needs the worker.
    pub(crate) fn is_needed(&self, worker: WorkerId) -> bool {
        self.needs.contains_key(&worker)
    }
}
