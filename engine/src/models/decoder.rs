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

/// Handles of the activations.
#[derive(Clone, Debug)]
struct Buffers {
    /// The residual stream.
    residual: Buffer,
    /// A block's contribution to the residual stream, before the next norm adds it.
    delta: Buffer,
    normed: Buffer,
    qkv: Buffer,
    attended: Buffer,
    gate_up: Buffer,
    activated: Buffer,
    /// Normed rows that logits are made of.
    sampling: Buffer,
    logits: Buffer,
}

impl Decoder {
    pub(super) fn new(spec: &ModelSpec, weights: DecoderWeights) -> Self {
        let mut arena = ArenaPlan::default();
        let buffers = Buffers {
            residual: arena.add(Axis::Inputs, spec.hidden),
            delta: arena.add(Axis::Inputs, spec.hidden),
            normed: arena.add(Axis::Inputs, spec.hidden),
            qkv: arena.add(Axis::Inputs, (spec.heads + 2 * spec.kv_heads) * spec.head_dim),
            attended: arena.add(Axis::Inputs, spec.heads * spec.head_dim),
            gate_up: arena.add(Axis::Inputs, 2 * spec.ffn),
            activated: arena.add(Axis::Inputs, spec.ffn),
            sampling: arena.add(Axis::Sampling, spec.hidden),
            logits: arena.add(Axis::Sampling, spec.vocab),
        };
        Self { weights, buffers, arena }
    }

    /// The buffers that [`Decoder::forward`] uses.
    pub fn arena(&self) -> &ArenaPlan {
        &self.arena
    }

    /// What a linear layer of this model is for.
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

    /// The step that `ops` holds, from tokens to sampled tokens.
    pub fn forward(&self, ops: &mut impl Ops) -> OpsResult {
        let &Buffers { residual, delta, normed, qkv, attended, gate_up, activated, sampling, logits } = &self.buffers;
        ops.embed(self.weights.embedding, residual)?;
        // The first norm has nothing to add: the embedding is the residual stream.
        let mut add = None;
        for (layer, weights) in (0..).zip(&self.weights.layers) {
            ops.norm_qkv_rope_cache(QkvArgs {
                layer,
                norm: NormArgs { residual, add, weight: weights.attention_norm, out: normed },
                projection: weights.qkv,
                head_norms: weights.head_norms,
                qkv,
            })?;
            ops.kv_written(layer)?;
            ops.attention(layer, qkv, attended)?;
            ops.linear(weights.output, attended, delta)?;
            ops.all_reduce(delta)?;
            post_norm(ops, weights.attention_post_norm, delta)?;
            add = Some(delta);
            ops.mlp(MlpArgs {
                norm: NormArgs { residual, add, weight: weights.mlp_norm, out: normed },
                gate_up: weights.gate_up,
                gate_up_out: gate_up,
                activated,
                down: weights.down,
                out: delta,
            })?;
            post_norm(ops, weights.mlp_post_norm, delta)?;
        }
        ops.sampling_norm(NormArgs { residual, add, weight: Some(self.weights.norm), out: sampling })?;
        ops.logits(self.weights.head, sampling, logits)?;
        ops.sample(logits)
    }
}

/// Norms what a block adds to the residual stream, where the family does.
fn post_norm(ops: &mut impl Ops, weight: Option<Norm>, delta: Buffer) -> OpsResult {
    match weight {
        Some(_) => ops.rms_norm(NormArgs { residual: delta, add: None, weight, out: delta }),
        None => Ok(()),
    }
}
