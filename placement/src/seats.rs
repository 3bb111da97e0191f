//! Which requests each worker has to do with: what becomes of a worker costs what it does, and not what all do.

use domain::{RequestId, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// The workers that have to do with a request, and whether it needs each: to make tokens, or to be read from.
pub(crate) type Seats = [Option<(WorkerId, bool)>; 4];

/// The requests of all workers.
#[derive(Debug, Default)]
pub(crate) struct Seating {
    requests: BTreeSet<(WorkerId, RequestId)>,
    /// How many of them need the worker; none of them is 0.
    needs: BTreeMap<WorkerId, u32>,
}

impl Seating {
    /// A request has to do with `now` in place of `before`. No worker is twice in either.
    pub(crate) fn change(&mut self, request: RequestId, before: &Seats, now: &Seats) {
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

    /// The requests of a worker, by id.
    pub(crate) fn of(&self, worker: WorkerId) -> Vec<RequestId> {
        let all = (worker, RequestId(0))..=(worker, RequestId(u64::MAX));
        self.requests.range(all).map(|&(_, request)| request).collect()
    }

    /// Whether any request needs the worker.
    pub(crate) fn needs(&self, worker: WorkerId) -> bool {
        self.needs.contains_key(&worker)
    }
}
