//! What is known of a response by and by: what parsing its request shows, and what its writer makes of it.

use super::response::Asked;
use serde_json::Value;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What is known of a response by and by.
#[derive(Debug, Default)]
pub(super) struct Made {
    asked: OnceLock<Asked>,
    /// The response, once it is over.
    over: Mutex<Option<Value>>,
}

impl Made {
    /// Returns what was asked for.
    pub(super) fn asked(&self) -> &Asked {
        self.asked.get_or_init(Asked::default)
    }

    /// Takes what is asked for. A request is parsed once: what comes later does not count.
    pub(super) fn asks(&self, asked: Asked) {
        let _ = self.asked.set(asked);
    }

    /// Returns the response, once, if it is over.
    pub(super) fn take_over(&self) -> Option<Value> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the response, which is over.
    pub(super) fn is_over(&self, response: Value) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = Some(response);
    }
}
