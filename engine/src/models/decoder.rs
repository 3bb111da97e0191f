//! The forward pass of the decoder-only families, once for all devices. Where they differ, the [`ModelSpec`] says so:
//! windows, biases, where norms stand, head size, tied embeddings, scales.
//!
//! What is deliberately absent: any knowledge of the device, and names of tensors ([`super::bind`] has them).

use crate::ops::{ArenaPlan, Axis, Buffer, Embedding, Linear, MlpArgs, Norm, NormArgs, Ops, OpsResult, QkvArgs};
use crate::spec::ModelSpec;
use crate::timed::LinearRole;

/// A model whose weights are in a device's store: handles of weights and activations.
#[derive(Clone, Debug)]
pub struct Decoder {
    pub(super) weights: DecoderWeights,
    buffers: Buffers,
    arena: ArenaPlan,
}

/// Handles of all weights.
#[derive(Clone, Debug)]
pub(super) struct DecoderWeights {
    pub(super) embedding: Embedding,
    pub(super) layers: Vec<LayerWeights>,
    pub(super) norm: Norm,
    pub(super) head: Linear,
}

/// Handles of a layer's weights.
#[derive(Clone, Debug)]
pub(super) struct LayerWeights {
    /// On what the attention reads.
    pub(super) attention_norm: Option<Norm>,
    pub(super) qkv: Linear,
    pub(super) head_norms: Option<(Norm, Norm)>,
    pub(super) output: Linear,
    /// On what the attention adds.
    pub(super) attention_post_norm: Option<Norm>,
    /// On what the feed-forward reads.
    pub(super) mlp_norm: Option<Norm>,
    pub(super) gate_up: Linear,
    pub(super) down: Linear,
    /// On what the feed-forward adds.
    pub(super) mlp_post_norm: Option<Norm>,
}

/// Handles of the activations. Only what a layer leaves for the next one has room for all rows of a step.
#[derive(Clone, Debug)]
struct Buffers {
    /// The residual stream.
    residual: Buffer,
    /// Queries; then what attention makes of them.
    queries: Buffer,
    /// What was normed; then a block's contribution to the residual stream, before the next norm adds it.
    delta: Buffer,
    /// Queries, keys and values as they are projected; gates and ups.
    wide: Buffer,
    /// Normed rows that logits are made of.
    last: Buffer,
    logits: Buffer,
}

impl Decoder {
    pub(super) fn new(spec: &ModelSpec, weights: DecoderWeights) -> Self {
        let mut arena = ArenaPlan::default();
        let qkv = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
        let buffers = Buffers {
            residual: arena.add(Axis::Inputs, spec.hidden),
            queries: arena.add(Axis::Inputs, spec.heads * spec.head_dim),
            delta: arena.add(Axis::MicroBatch, spec.hidden),
            wide: arena.add(Axis::MicroBatch, qkv.max(2 * spec.feed_forward_width_max())),
            last: arena.add(Axis::Logits, spec.hidden),
            logits: arena.add(Axis::Logits, spec.vocab),
        };
        Self { weights, buffers, arena }
    }

    /// Returns the buffers that [`Decoder::forward`] uses.
    pub fn arena(&self) -> &ArenaPlan {
        &self.arena
    }

    /// Returns the buffer of the logits.
    pub fn logits_buffer(&self) -> Buffer {
        self.buffers.logits
    }

    /// Returns the layer that makes logits.
    pub fn head(&self) -> Linear {
        self.weights.head
    }

    /// Returns whether a buffer has room for all rows of a step, not only for a micro-batch's.
    pub fn is_of_all_rows(&self, buffer: Buffer) -> bool {
        self.arena.shapes()[buffer.0].axis == Axis::Inputs
    }

    /// Returns what a linear layer of this model is for.
    pub fn role(&self, linear: Linear) -> LinearRole {
        let of_layer = |layer: &LayerWeights| {
            let roles = [
                (layer.qkv, LinearRole::Qkv),
                (layer.output, LinearRole::Output),
                (layer.gate_up, LinearRole::GateUp),
                (layer.down, LinearRole::Down),
            ];
            roles.into_iter().find(|(other, _)| *other == linear).map(|(_, role)| role)
        };
        self.weights.layers.iter().find_map(of_layer).unwrap_or(LinearRole::Head)
    }

    /// The step that `ops` holds, from tokens to sampled tokens. A micro-batch that has attended to a layer's
    /// keys goes on up to the keys of the next one, so that nothing but the residual stream and the queries waits for
    /// other micro-batches.
    pub fn forward(&self, ops: &mut impl Ops) -> OpsResult {
        let &Buffers { residual, delta, last, logits, .. } = &self.buffers;
        for index in 0..ops.micro_batches() {
            ops.begin_micro_batch(index);
            ops.embed(self.weights.embedding, residual)?;
            // The first norm has nothing to add: the embedding is the residual stream.
            self.project(ops, 0, &self.weights.layers[0], None)?;
        }
        ops.kv_written(0)?;
        for (next, weights) in (1..).zip(&self.weights.layers) {
            let next_weights = self.weights.layers.get(usize::from(next));
            for index in 0..ops.micro_batches() {
                ops.begin_micro_batch(index);
                self.attend(ops, next - 1, weights)?;
                match next_weights {
                    Some(weights) => self.project(ops, next, weights, Some(delta))?,
                    None => {
                        let weight = Some(self.weights.norm);
                        ops.last_norm(NormArgs { residual, add: Some(delta), weight, out: last }, delta)?;
                    }
                }
            }
            if next_weights.is_some() {
                ops.kv_written(next)?;
            }
        }
        ops.logits(self.weights.head, last, logits)?;
        ops.sample(logits)
    }

    /// Returns a layer up to its keys and values, for the rows of a micro-batch.
    fn project(&self, ops: &mut impl Ops, layer: u16, weights: &LayerWeights, add: Option<Buffer>) -> OpsResult {
        let &Buffers { residual, queries, delta, wide, .. } = &self.buffers;
        ops.norm_qkv_rope_cache(QkvArgs {
            layer,
            norm: NormArgs { residual, add, weight: weights.attention_norm, out: delta },
            projection: weights.qkv,
            head_norms: weights.head_norms,
            qkv: wide,
            queries,
        })
    }

    /// Returns a layer from its attention on, for the rows of a micro-batch. Its last contribution is not added yet.
    fn attend(&self, ops: &mut impl Ops, layer: u16, weights: &LayerWeights) -> OpsResult {
        let &Buffers { residual, queries, delta, wide, .. } = &self.buffers;
        ops.attention(layer, queries)?;
        ops.linear(weights.output, queries, delta)?;
        ops.all_reduce(delta)?;
        post_norm(ops, weights.attention_post_norm, delta)?;
        ops.mlp(MlpArgs {
            layer,
            norm: NormArgs { residual, add: Some(delta), weight: weights.mlp_norm, out: delta },
            gate_up: weights.gate_up,
            gate_up_out: wide,
            down: weights.down,
            out: delta,
        })?;
        post_norm(ops, weights.mlp_post_norm, delta)
    }
}

/// Norms what a block adds to the residual stream, where the family does.
fn post_norm(ops: &mut impl Ops, weight: Option<Norm>, delta: Buffer) -> OpsResult {
    match weight {
        Some(_) => ops.rms_norm(NormArgs { residual: delta, add: None, weight, out: delta }),
        None => Ok(()),
    }
}
