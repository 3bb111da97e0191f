//! The tensors of a model: names and shapes as Hugging Face checkpoints have them.

use crate::spec::{ModelSpec, NormPlacement, QkNorm};

/// Name of the embedding.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// Name of the output projection, where it is not the embedding.
pub(super) const HEAD: &str = "lm_head.weight";

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRole {
    /// Rows of the embedding.
    Embedding,
    /// Projection to queries.
    Query,
    /// Projection to keys.
    Key,
    /// Projection to values.
    Value,
    /// Projection to queries, keys and values.
    Qkv,
    /// Projection of the attention's result.
    Output,
    /// Gate of the feed-forward.
    Gate,
    /// The feed-forward's way up.
    Up,
    /// Gate and way up of the feed-forward.
    GateUp,
    /// The feed-forward's way down.
    Down,
    /// A bias.
    Bias,
    /// Norm before or after the attention or the feed-forward.
    Norm,
    /// Norm of queries or keys.
    HeadNorm,
    /// Norm after the last layer.
    FinalNorm,
    /// Output projection, where it is not the embedding.
    Head,
}

/// A tensor that a model must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorShape {
    /// Its name.
    pub name: String,
    /// Its shape: `[outputs, inputs]` for a projection.
    pub shape: Vec<usize>,
    /// What it is for.
    pub role: TensorRole,
}

impl TensorShape {
    /// Numbers in it.
    pub fn numbers(&self) -> u64 {
        self.shape.iter().map(|&size| size as u64).product()
    }
}

/// Names of a layer's norms over the residual stream.
pub(super) struct NormNames {
    /// On what the attention reads.
    pub(super) attention: Option<&'static str>,
    /// On what the attention adds.
    pub(super) attention_post: Option<&'static str>,
    /// On what the feed-forward reads.
    pub(super) mlp: Option<&'static str>,
    /// On what the feed-forward adds.
    pub(super) mlp_post: Option<&'static str>,
}

impl NormNames {
    /// Their names by where they stand: one name may stand for different places.
    pub(super) fn of(placement: NormPlacement) -> Self {
        let (input, after) = (Some("input_layernorm"), Some("post_attention_layernorm"));
        let (pre, post) = (Some("pre_feedforward_layernorm"), Some("post_feedforward_layernorm"));
        match placement {
            NormPlacement::Before => Self { attention: input, attention_post: None, mlp: after, mlp_post: None },
            NormPlacement::After => Self { attention: None, attention_post: after, mlp: None, mlp_post: post },
            NormPlacement::Both => Self { attention: input, attention_post: after, mlp: pre, mlp_post: post },
        }
    }
}

/// Numbers in the weights of the norms of queries and of keys.
pub(super) fn qk_norm_widths(spec: &ModelSpec) -> Option<(usize, usize)> {
    match spec.qk_norm {
        QkNorm::None => None,
        QkNorm::Heads => Some((spec.head_dim, spec.head_dim)),
        QkNorm::Width => Some((spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim)),
    }
}

/// Returns the tensors of a model, layer by layer.
pub fn tensors(spec: &ModelSpec) -> Vec<TensorShape> {
    use TensorRole::{
        Bias, Down, Embedding, FinalNorm, Gate, GateUp, Head, HeadNorm, Key, Norm, Output, Qkv, Query, Up, Value,
    };
    let mut all = Vec::new();
    let mut add = |name: String, shape: &[usize], role| all.push(TensorShape { name, shape: shape.to_vec(), role });
    let (hidden, head_dim) = (spec.hidden, spec.head_dim);
    let norms = NormNames::of(spec.norms);
    let (queries, keys) = (spec.heads * head_dim, spec.kv_heads * head_dim);

    add(EMBEDDING.to_owned(), &[spec.vocab, hidden], Embedding);
    for (layer, feed_forward) in spec.feed_forward.iter().enumerate() {
        let ffn = feed_forward.width();
        let mut add_projection = |name: &str, outputs: usize, inputs: usize, role, bias: bool| {
            add(format!("model.layers.{layer}.{name}.weight"), &[outputs, inputs], role);
            if bias {
                add(format!("model.layers.{layer}.{name}.bias"), &[outputs], Bias);
            }
        };
        if spec.fused {
            add_projection("self_attn.qkv_proj", queries + 2 * keys, hidden, Qkv, spec.qkv_bias);
        } else {
            add_projection("self_attn.q_proj", queries, hidden, Query, spec.qkv_bias);
            add_projection("self_attn.k_proj", keys, hidden, Key, spec.qkv_bias);
            add_projection("self_attn.v_proj", keys, hidden, Value, spec.qkv_bias);
        }
        add_projection("self_attn.o_proj", hidden, queries, Output, spec.output_bias);
        if spec.fused {
            add_projection("mlp.gate_up_proj", 2 * ffn, hidden, GateUp, spec.mlp_bias);
        } else {
            add_projection("mlp.gate_proj", ffn, hidden, Gate, spec.mlp_bias);
            add_projection("mlp.up_proj", ffn, hidden, Up, spec.mlp_bias);
        }
        add_projection("mlp.down_proj", hidden, ffn, Down, spec.mlp_bias);
        for norm in [norms.attention, norms.attention_post, norms.mlp, norms.mlp_post].into_iter().flatten() {
            add(format!("model.layers.{layer}.{norm}.weight"), &[hidden], Norm);
        }
        if let Some((query, key)) = qk_norm_widths(spec) {
            add(format!("model.layers.{layer}.self_attn.q_norm.weight"), &[query], HeadNorm);
            add(format!("model.layers.{layer}.self_attn.k_norm.weight"), &[key], HeadNorm);
        }
    }
    add("model.norm.weight".to_owned(), &[hidden], FinalNorm);
    if !spec.tied {
        add(HEAD.to_owned(), &[spec.vocab, hidden], Head);
    }
    all
}
