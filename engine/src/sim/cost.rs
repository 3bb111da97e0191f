//! How long a card takes for a plan: a roofline per kind of work, a pure function of the plan.
//!
//! Work is either bound by what the tensor cores compute or by what memory delivers, whichever takes longer. The
//! linear layers run over all rows of a step at once and read the weights once: a decode step waits for memory, a
//! long chunk computes. Attention is counted span by span: each query computes on every position before it, and
//! each span reads the KV of its context once.
//!
//! What is deliberately absent: windows (no preset has one), collectives between cards, and interference between what
//! runs at the same time.

use super::preset::Preset;
use domain::plan::{Span, StepPlan};
use std::time::Duration;

/// Share of the tensor cores' best that products with weights reach. An assumption: large products on Hopper cards are
/// held back by power, and chunks are not always large.
const LINEAR_UTILISATION: f64 = 0.6;

/// The same of attention over a prompt. An assumption below what its best kernel reaches on long sequences: 75% on an
/// H100 (FlashAttention-3, arXiv:2407.08608).
const ATTENTION_UTILISATION: f64 = 0.6;

/// Share of the memory's best that reading weights and KV reaches. Measured elsewhere: decoding Llama 2 7B in bf16, one
/// sequence, reads 1,397 GB/s of an A100's 2,039 (README of pytorch-labs/gpt-fast); taken over to cards with HBM3.
const MEMORY_UTILISATION: f64 = 0.69;

/// Time of a step in which nothing is computed: launches, sampling, the way back to the host. An assumption.
const STEP_OVERHEAD: Duration = Duration::from_micros(150);

/// The times of a step's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTime {
    /// Until the first layer begins.
    pub before: Duration,
    /// Of each layer.
    pub layer: Duration,
    /// Of each layer, the part at whose end its K and V are written; at most `layer`.
    pub layer_written: Duration,
    /// After the last layer.
    pub after: Duration,
}

impl StepTime {
    /// From the beginning of the step until the K and V of `layer` are written.
    pub fn written(&self, layer: u16) -> Duration {
        self.before + self.layer * u32::from(layer) + self.layer_written
    }

    /// Returns the whole step, of a model with so many layers.
    pub fn total(&self, layers: u16) -> Duration {
        self.before + self.layer * u32::from(layers) + self.after
    }

    /// The same on a card that is so many times as fast. 0: it takes no time at all.
    pub fn at_speed(&self, speed: f64) -> Self {
        if speed == 0.0 {
            return Self::default();
        }
        let faster = |time: Duration| time.div_f64(speed);
        Self {
            before: faster(self.before),
            layer: faster(self.layer),
            layer_written: faster(self.layer_written),
            after: faster(self.after),
        }
    }
}

/// Times of a model on a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    preset: Preset,
}

impl CostModel {
    /// Returns the times of `preset`.
    pub fn new(preset: Preset) -> Self {
        Self { preset }
    }

    /// Returns the times of a plan's step. Copies of blocks are taken to be free.
    pub fn step(&self, plan: &StepPlan) -> StepTime {
        let Preset { card, shape, precision, .. } = &self.preset;
        let before = STEP_OVERHEAD;
        if plan.rows() == 0 {
            return StepTime { before, ..StepTime::default() };
        }
        let bytes_per_s = card.memory_bytes_per_s * MEMORY_UTILISATION;
        let linear = {
            let flops = 2.0 * shape.layer_weights() * plan.rows() as f64;
            let bytes = shape.layer_weights() * precision.weight_bytes();
            (flops / (precision.flops(card) * LINEAR_UTILISATION)).max(bytes / bytes_per_s)
        };
        let attention = |span: &Span| {
            let (rows, start) = (span.inputs.len() as f64, f64::from(span.start));
            // Row i of the span attends to the `start` positions before it, to i of the span, and to itself.
            let pairs = rows * start + rows * (rows + 1.0) / 2.0;
            let compute = shape.attention_flops() * pairs / (card.bf16_flops * ATTENTION_UTILISATION);
            compute.max(shape.kv_bytes() * (start + rows) / bytes_per_s)
        };
        let samples = plan.samples() as f64;
        let head = if samples == 0.0 {
            0.0
        } else {
            let compute = 2.0 * shape.head_weights() * samples / (card.bf16_flops * LINEAR_UTILISATION);
            compute.max(2.0 * shape.head_weights() / bytes_per_s)
        };
        StepTime {
            before,
            layer: Duration::from_secs_f64(linear + plan.spans.iter().map(attention).sum::<f64>()),
            layer_written: Duration::from_secs_f64(linear * shape.qkv_weights() / shape.layer_weights()),
            after: Duration::from_secs_f64(head),
        }
    }
}
