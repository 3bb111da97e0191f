//! Why lanes to peers are passed over, in words: what `baton topo` shows. Metrics have the kinds of reasons alone,
//! for words are as many as there are addresses and errors.

use domain::WorkerId;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A lane, and why it is not taken.
pub type Reason = (&'static str, String);

/// The reasons of readers for the lanes to their peers.
type Told = BTreeMap<(WorkerId, WorkerId), Arc<Vec<Reason>>>;

static TOLD: Mutex<Told> = Mutex::new(BTreeMap::new());

/// The reasons of one worker for the lane to one peer. They are told until this is dropped.
#[derive(Debug)]
pub struct Reasons {
    pair: (WorkerId, WorkerId),
    reasons: Arc<Vec<Reason>>,
}

impl Reasons {
    /// Tells why `worker` does not read from `peer` over these lanes.
    pub fn tell(worker: WorkerId, peer: WorkerId, reasons: Vec<Reason>) -> Self {
        let (pair, reasons) = ((worker, peer), Arc::new(reasons));
        told().insert(pair, reasons.clone());
        Self { pair, reasons }
    }
}

impl Drop for Reasons {
    fn drop(&mut self) {
        let mut told = told();
        if told.get(&self.pair).is_some_and(|reasons| Arc::ptr_eq(reasons, &self.reasons)) {
            told.remove(&self.pair);
        }
    }
}

/// Locks it. A panic while it was held left nothing half done.
fn told() -> MutexGuard<'static, Told> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns all reasons as JSON: a list of `worker`, `peer`, and of `passed_over`, a list of `lane` and `reason`.
pub fn render() -> String {
    let pair = |(&(worker, peer), reasons): (&(WorkerId, WorkerId), &Arc<Vec<Reason>>)| {
        let reasons: Vec<Value> =
            reasons.iter().map(|(lane, reason)| json!({ "lane": lane, "reason": reason })).collect();
        json!({ "worker": worker.to_string(), "peer": peer.to_string(), "passed_over": reasons })
    };
    Value::Array(told().iter().map(pair).collect()).to_string()
}
