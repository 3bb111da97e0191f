//! The tensors of a model: names and shapes as Hugging Face checkpoints have them.

use crate::spec::ModelSpec;

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
    /// Projection of the attention's result.
    Output,
    /// Gate of the feed-forward.
    Gate,
    /// The feed-forward's way up.
    Up,
    /// The feed-forward's way down.
    Down,
    /// A bias.
    Bias,
    /// Norm before the attention or the feed-forward.
    Norm,
    /// Norm of query or key heads.
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

/// The tensors of a model, layer by layer.
pub fn tensors(spec: &ModelSpec) -> Vec<TensorShape> {
    use TensorRole::{Bias, Down, Embedding, FinalNorm, Gate, Head, HeadNorm, Key, Norm, Output, Query, Up, Value};
    let mut all = Vec::new();
    let mut add = |name: String, shape: &[usize], role| all.push(TensorShape { name, shape: shape.to_vec(), role });
    let (hidden, ffn, head_dim) = (spec.hidden, spec.ffn, spec.head_dim);
    let (queries, keys) = (spec.heads * head_dim, spec.kv_heads * head_dim);

    add("model.embed_tokens.weight".to_owned(), &[spec.vocab, hidden], Embedding);
    for layer in 0..spec.layers {
        let mut add_projection = |name: &str, outputs: usize, inputs: usize, role, bias: bool| {
            add(format!("model.layers.{layer}.{name}.weight"), &[outputs, inputs], role);
            if bias {
                add(format!("model.layers.{layer}.{name}.bias"), &[outputs], Bias);
            }
        };
        add_projection("self_attn.q_proj", queries, hidden, Query, spec.qkv_bias);
        add_projection("self_attn.k_proj", keys, hidden, Key, spec.qkv_bias);
        add_projection("self_attn.v_proj", keys, hidden, Value, spec.qkv_bias);
        add_projection("self_attn.o_proj", hidden, queries, Output, spec.output_bias);
        add_projection("mlp.gate_proj", ffn, hidden, Gate, spec.mlp_bias);
        add_projection("mlp.up_proj", ffn, hidden, Up, spec.mlp_bias);
        add_projection("mlp.down_proj", hidden, ffn, Down, spec.mlp_bias);
        add(format!("model.layers.{layer}.input_layernorm.weight"), &[hidden], Norm);
        add(format!("model.layers.{layer}.post_attention_layernorm.weight"), &[hidden], Norm);
        if spec.qk_norm {
            add(format!("model.layers.{layer}.self_attn.q_norm.weight"), &[head_dim], HeadNorm);
            add(format!("model.layers.{layer}.self_attn.k_norm.weight"), &[head_dim], HeadNorm);
        }
    }
    add("model.norm.weight".to_owned(), &[hidden], FinalNorm);
    if !spec.tied {
        add("lm_head.weight".to_owned(), &[spec.vocab, hidden], Head);
    }
    all
}
