//! Gemma 2 (`Gemma2ForCausalLM`): norms before and after attention and feed-forward, GELU, soft caps on attention
//! scores and logits, and a sliding window in every other layer.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::{Activation, Attention, ModelSpec, NormPlacement};
use serde_json::Value;

/// Head width where a config names none.
const HEAD_DIM_DEFAULT: usize = 256;
/// KV heads where a config names none.
const KV_HEADS_DEFAULT: usize = 4;
/// Window where a config names none.
const WINDOW_DEFAULT: u32 = 4096;
/// One layer in so many has no window.
const WINDOW_PATTERN: usize = 2;
/// What queries are scaled by the root of, where a config does not say.
const QUERY_SCALAR_DEFAULT: f64 = 256.0;
/// Soft cap of attention scores where a config does not mention one; `null` means none.
const ATTENTION_CAP_DEFAULT: f64 = 50.0;
/// Soft cap of logits where a config does not mention one.
const LOGITS_CAP_DEFAULT: f64 = 30.0;

/// The family.
pub(super) static GEMMA2: Family =
    Family { model_type: "gemma2", architecture: "Gemma2ForCausalLM", has_window: true, rope: RopeForm::PLAIN, read };

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = gemma(&GEMMA2, config)?;
    let cap = |key, default| config.positive_or_null(key, Some(default)).map(|cap| cap.map(|cap| cap as f32));
    let attention_cap = cap("attn_logit_softcapping", ATTENTION_CAP_DEFAULT)?;
    let logits_cap = cap("final_logit_softcapping", LOGITS_CAP_DEFAULT)?;
    let attention = attention(config, spec.layers, WINDOW_PATTERN)?;
    Ok(ModelSpec { attention_cap, logits_cap, attention, ..spec })
}

/// Returns what Gemma 2 and Gemma 3 share. Windows are not set yet.
pub(super) fn gemma(family: &'static Family, config: &Config) -> Result<ModelSpec, ConfigError> {
    let defaults = Defaults { kv_heads: Some(KV_HEADS_DEFAULT), head_dim: Some(HEAD_DIM_DEFAULT), tied: true };
    let spec = common(family, config, defaults)?;
    if config.flag("use_bidirectional_attention", false)? {
        return Err(config.unsupported("use_bidirectional_attention", &Value::from(true), false));
    }
    let bias = config.flag("attention_bias", false)?;
    let query_scalar = config.positive("query_pre_attn_scalar", Some(QUERY_SCALAR_DEFAULT))?;
    Ok(ModelSpec {
        norms: NormPlacement::Both,
        // Checkpoints hold a norm's weights as their distance from 1.
        norm_offset: 1.0,
        activation: config.activation("hidden_activation", Activation::GeluTanh)?,
        embedding_scale: (spec.hidden as f32).sqrt(),
        attention_scale: query_scalar.powf(-0.5) as f32,
        qkv_bias: bias,
        output_bias: bias,
        ..spec
    })
}

/// Returns the attention of each layer: by `layer_types`, else a window in all but every `pattern`-th one.
pub(super) fn attention(config: &Config, layers: usize, pattern: usize) -> Result<Vec<Attention>, ConfigError> {
    let window = if config.names("sliding_window") { config.window("sliding_window")? } else { Some(WINDOW_DEFAULT) };
    let windowed = windowed(config, layers, pattern)?;
    Ok(windowed.into_iter().map(|windowed| window.filter(|_| windowed).into()).collect())
}

/// Returns whether each layer is one of those with a window.
pub(super) fn windowed(config: &Config, layers: usize, pattern: usize) -> Result<Vec<bool>, ConfigError> {
    let listed = config.layer_types(layers)?;
    Ok(listed.unwrap_or_else(|| (1..=layers).map(|layer| layer % pattern != 0).collect()))
}
