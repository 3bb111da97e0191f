//! What watches the steps of a device, for tests and measurements.

use crate::timed::OperationTap;
use domain::SeqKey;
use std::sync::{Arc, Mutex};

/// Sees the logits that are wanted; for tests and measurements.
pub trait LogitsTap: Send {
    /// The logits (`[vocab]`) of sequence `key` at `position`, behind the token there. Called once for each row whose
    /// logits are wanted, in plan order, on the device's thread.
    fn logits(&mut self, key: SeqKey, position: u32, logits: &[f32]);
}

/// What watches the steps, where something does.
#[derive(Clone, Default)]
pub(super) struct Taps {
    pub(super) logits: Arc<Mutex<Option<Box<dyn LogitsTap>>>>,
    pub(super) operations: Arc<Mutex<Option<Box<dyn OperationTap>>>>,
}
