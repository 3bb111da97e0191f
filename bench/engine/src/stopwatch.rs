//! The time of each operation of the steps of a sample.

use engine::timed::{Operation, OperationTap};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often each operation ran, and for how long in all.
pub(crate) type Times = BTreeMap<Operation, (u64, Duration)>;

/// Adds up what the device's thread reports. The holder of the other end takes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopwatch(Arc<Mutex<Times>>);

impl Stopwatch {
    /// Takes what was added up since the last call.
    pub(crate) fn take(&self) -> Times {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OperationTap for Stopwatch {
    fn ran(&mut self, operation: Operation, elapsed: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, spent) = times.entry(operation).or_default();
        *calls += 1;
        *spent += elapsed;
    }
}
