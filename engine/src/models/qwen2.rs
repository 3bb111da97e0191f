//! Qwen2 and Qwen2.5 (`Qwen2ForCausalLM`): Llama's form with biases on queries, keys and values, and sliding windows in
//! the upper layers where they are switched on.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::ModelSpec;

/// KV heads where a config names none.
const KV_HEADS_DEFAULT: usize = 32;
/// First layer with a window where a config does not say.
const WINDOW_LAYER_DEFAULT: usize = 28;

/// The family.
pub(super) static QWEN2: Family =
    Family { model_type: "qwen2", architecture: "Qwen2ForCausalLM", has_window: true, rope: RopeForm::PLAIN, read };

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = common(&QWEN2, config, Defaults { kv_heads: Some(KV_HEADS_DEFAULT), head_dim: None, tied: false })?;
    let attention = config.attention_by_layer(spec.layers, WINDOW_LAYER_DEFAULT)?;
    Ok(ModelSpec { qkv_bias: true, attention, ..spec })
}
