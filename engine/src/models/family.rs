//! A family of models, and what all families read of config.json alike.

use super::config::{CONTEXT_MAX, Config, ConfigError, HEAD_DIM_MAX, LAYERS_MAX, TIED, WIDTH_MAX};
use super::rope::RopeForm;
use crate::spec::{Activation, Attention, FeedForward, ModelSpec, NormPlacement, QkNorm};
use domain::Dtype;

/// RMS norm's epsilon where a config names none.
const NORM_EPS_DEFAULT: f64 = 1e-6;

/// A family of models: one form of decoder.
#[derive(Debug)]
pub struct Family {
    /// Its name, as `model_type` in config.json says it.
    pub model_type: &'static str,
    /// The name of its class with an output projection, as `architectures` in config.json says it.
    pub architecture: &'static str,
    /// Its layers may have sliding windows.
    pub has_window: bool,
    /// The rotary embeddings that its layers may have.
    pub(super) rope: RopeForm,
    /// Makes a spec of config.json.
    pub(super) read: fn(&Config) -> Result<ModelSpec, ConfigError>,
}

/// What a family takes where a config names no value.
pub(super) struct Defaults {
    /// KV heads; `None`: as many as query heads.
    pub(super) kv_heads: Option<usize>,
    /// Numbers per head; `None`: `hidden_size / num_attention_heads`.
    pub(super) head_dim: Option<usize>,
    /// Whether the output projection is the embedding.
    pub(super) tied: bool,
}

impl Family {
    /// Returns whether its rotary embedding may be scaled so, as config.json spells it.
    pub fn has_rope_type(&self, kind: &str) -> bool {
        self.rope.types.contains(&kind)
    }
}

/// Returns what all families read alike; norms before attention and feed-forward only, no biases, norms on heads,
/// windows, scales and caps yet.
pub(super) fn common(family: &Family, config: &Config, defaults: Defaults) -> Result<ModelSpec, ConfigError> {
    let vocab = config.count("vocab_size", 1..=WIDTH_MAX)?;
    let hidden = config.count("hidden_size", 1..=WIDTH_MAX)?;
    let layers = config.count("num_hidden_layers", 1..=LAYERS_MAX)?;
    let heads = config.count("num_attention_heads", 1..=WIDTH_MAX)?;
    let kv_heads = match defaults.kv_heads {
        Some(default) if !config.names("num_key_value_heads") => default,
        _ => config.count_or("num_key_value_heads", 1..=WIDTH_MAX, Some(heads))?,
    };
    if heads % kv_heads != 0 {
        let expected = format!("a divisor of num_attention_heads ({heads})");
        return Err(config.value_error("num_key_value_heads", &kv_heads.into(), expected));
    }
    let even_share = (hidden % heads == 0).then_some(hidden / heads);
    let head_dim = config.count_or("head_dim", 1..=HEAD_DIM_MAX, defaults.head_dim.or(even_share))?;
    if head_dim % 2 != 0 {
        return Err(config.value_error("head_dim", &head_dim.into(), "even, for the rotary embedding"));
    }
    let context = config.count("max_position_embeddings", 1..=CONTEXT_MAX)?;
    let rope = config.rope(&family.rope, head_dim, context)?;
    let context = rope.context(context).min(CONTEXT_MAX as usize);
    Ok(ModelSpec {
        family: family.model_type,
        vocab,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        feed_forward: vec![FeedForward::Dense { width: config.count("intermediate_size", 1..=WIDTH_MAX)? }; layers],
        norms: NormPlacement::Before,
        norm_eps: config.positive("rms_norm_eps", Some(NORM_EPS_DEFAULT))? as f32,
        norm_offset: 0.0,
        activation: config.activation("hidden_act", Activation::Silu)?,
        ropes: vec![rope; layers],
        context,
        tied: config.flag(TIED, defaults.tied)?,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        qk_norm: QkNorm::None,
        fused: false,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        query_growth: None,
        attention_cap: None,
        logits_scale: 1.0,
        logits_cap: None,
        attention: vec![Attention::Full; layers],
        dtype: config.dtype()?.unwrap_or(Dtype::F32),
        eos: config.tokens("eos_token_id", vocab)?,
        bos: config.tokens("bos_token_id", vocab)?.first().copied(),
    })
}
