//! What is known of a response by and by: what parsing its request shows, and what its writer makes of it.

use serde_json::{Map, Value};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What is known of a response by and by.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The fields of the request that the response repeats.
    told: OnceLock<Map<String, Value>>,
    kept: Mutex<Kept>,
}

/// What is to be kept of a response.
#[derive(Debug, Default)]
struct Kept {
    /// The items before its output. `None`: it is not to be kept, or was taken.
    input: Option<Vec<Value>>,
    /// The response, once it is over.
    over: Option<Value>,
}

impl Made {
    /// Returns the fields of the request that the response repeats.
    pub(super) fn told(&self) -> &Map<String, Value> {
        self.told.get_or_init(Map::new)
    }

    /// Takes what is asked for: the fields that the response repeats, and the items before its output if it is to be
    /// kept. A request is parsed once: what comes later does not count.
    pub(super) fn asks(&self, told: Map<String, Value>, input: Option<Vec<Value>>) {
        if self.told.set(told).is_ok() {
            self.kept().input = input;
        }
    }

    /// Takes the response, which is over.
    pub(super) fn is_over(&self, response: &Value) {
        let mut kept = self.kept();
        if kept.input.is_some() {
            kept.over = Some(response.clone());
        }
    }

    /// Returns the response and the items before its output, once, if it is over and to be kept.
    pub(super) fn take_over(&self) -> Option<(Value, Vec<Value>)> {
        let mut kept = self.kept();
        let response = kept.over.take()?;
        Some((response, kept.input.take()?))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
