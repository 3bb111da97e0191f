//! The progress word: how far an engine has written KV.

use crate::ids::StepId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the word that count layers of the current step.
const LAYER_BITS: u32 = 16;

/// A single word `(step, layers written)` that an engine raises and readers of its KV watch. One per rank, never reset,
/// only growing. The device raises it once a layer's K and V of the step are written, before that layer's attention.
///
/// A reader that sees the word at or above [`ProgressWord::mark`]`(step, layer)` also sees the bytes of that layer
/// written by that step (release on the raise, acquire on the look).
#[derive(Clone, Debug, Default)]
pub struct ProgressWord(Arc<AtomicU64>);

impl ProgressWord {
    /// A word at zero: nothing is written.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value that the word has at least when layers `0..=layer` of `step` are written.
    pub fn mark(step: StepId, layer: u16) -> u64 {
        (step.0 << LAYER_BITS) | (u64::from(layer) + 1)
    }

    /// The engine's side: layers `0..=layer` of `step` are written.
    pub fn raise(&self, step: StepId, layer: u16) {
        self.0.store(Self::mark(step, layer), Ordering::Release);
    }

    /// The reader's side: the word now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
