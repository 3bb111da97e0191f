//! How long each operation of a step takes, for measurements: [`Timed`] stands between a model's definition and a
//! device.
//!
//! What is deliberately absent: what an operation should take (whoever measures knows the limits of the machine).

use crate::clock::now;
use crate::ops::{Buffer, Embedding, Linear, Norm, NormArgs, Ops, OpsResult};
use std::time::Duration;

/// An operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Rows of the embedding.
    Embed,
    /// A norm over the residual stream.
    Norm,
    /// A linear layer.
    Linear(LinearRole),
    /// Norms of queries and keys.
    HeadNorm,
    /// Rotary embedding, and keys and values into the cache.
    Rotary,
    /// Attention over the cache.
    Attention,
    /// The gated activation.
    Gated,
    /// Sampling.
    Sample,
}

/// What a linear layer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinearRole {
    /// To queries, keys and values.
    Qkv,
    /// From the attention's result.
    Output,
    /// To gates and ups.
    GateUp,
    /// The feed-forward's way down.
    Down,
    /// To logits.
    Head,
}

/// What a linear layer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearSize {
    /// What it is for.
    pub role: LinearRole,
    /// Numbers of a row that it takes.
    pub inputs: usize,
    /// Numbers of a row that it gives.
    pub outputs: usize,
    /// Bytes of its weights as they are kept: what a step reads of them at least.
    pub bytes: usize,
}

/// Sees how long operations take; for measurements.
pub trait OperationTap: Send {
    /// An operation ended. Called in the order of the operations, on the device's thread.
    fn ran(&mut self, operation: Operation, elapsed: Duration);
}

/// Operations that are timed one by one. Composites are always their parts here, so that each part is told.
pub(crate) struct Timed<'a, O, R> {
    ops: &'a mut O,
    tap: &'a mut dyn OperationTap,
    /// What a linear layer is for.
    role: R,
}

impl<'a, O: Ops, R: Fn(Linear) -> LinearRole> Timed<'a, O, R> {
    pub(crate) fn new(ops: &'a mut O, tap: &'a mut dyn OperationTap, role: R) -> Self {
        Self { ops, tap, role }
    }

    fn time(&mut self, operation: Operation, run: impl FnOnce(&mut O) -> OpsResult) -> OpsResult {
        let began = now();
        let done = run(self.ops);
        self.tap.ran(operation, now().duration_since(began));
        done
    }
}

impl<O: Ops, R: Fn(Linear) -> LinearRole> Ops for Timed<'_, O, R> {
    fn micro_batches(&self) -> usize {
        self.ops.micro_batches()
    }

    fn begin_micro_batch(&mut self, index: usize) {
        self.ops.begin_micro_batch(index);
    }

    fn embed(&mut self, table: Embedding, out: Buffer) -> OpsResult {
        self.time(Operation::Embed, |ops| ops.embed(table, out))
    }

    fn rms_norm(&mut self, args: NormArgs) -> OpsResult {
        self.time(Operation::Norm, |ops| ops.rms_norm(args))
    }

    fn linear(&mut self, weights: Linear, x: Buffer, out: Buffer) -> OpsResult {
        self.time(Operation::Linear((self.role)(weights)), |ops| ops.linear(weights, x, out))
    }

    fn head_norm(&mut self, query: Norm, key: Norm, qkv: Buffer) -> OpsResult {
        self.time(Operation::HeadNorm, |ops| ops.head_norm(query, key, qkv))
    }

    fn rope_cache(&mut self, layer: u16, qkv: Buffer, queries: Buffer) -> OpsResult {
        self.time(Operation::Rotary, |ops| ops.rope_cache(layer, qkv, queries))
    }

    fn kv_written(&mut self, layer: u16) -> OpsResult {
        self.ops.kv_written(layer)
    }

    fn attention(&mut self, layer: u16, queries: Buffer) -> OpsResult {
        self.time(Operation::Attention, |ops| ops.attention(layer, queries))
    }

    fn gated(&mut self, layer: u16, gate_up: Buffer) -> OpsResult {
        self.time(Operation::Gated, |ops| ops.gated(layer, gate_up))
    }

    fn all_reduce(&mut self, x: Buffer) -> OpsResult {
        self.ops.all_reduce(x)
    }

    fn last_norm(&mut self, args: NormArgs, scratch: Buffer) -> OpsResult {
        self.time(Operation::Norm, |ops| ops.last_norm(args, scratch))
    }

    fn logits(&mut self, head: Linear, x: Buffer, out: Buffer) -> OpsResult {
        self.time(Operation::Linear(LinearRole::Head), |ops| ops.logits(head, x, out))
    }

    fn sample(&mut self, logits: Buffer) -> OpsResult {
        self.time(Operation::Sample, |ops| ops.sample(logits))
    }
}
