//! Qwen3 (`Qwen3ForCausalLM`): Llama's form with an RMS norm on each query and key head, a head width of its own, and
//! sliding windows in the upper layers where they are switched on.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::{ModelSpec, QkNorm};

/// KV heads where a config names none.
const KV_HEADS_DEFAULT: usize = 32;
/// Head width where a config names none.
const HEAD_DIM_DEFAULT: usize = 128;
/// First layer with a window where a config does not say.
const WINDOW_LAYER_DEFAULT: usize = 28;

/// The family.
pub(super) static QWEN3: Family =
    Family { model_type: "qwen3", architecture: "Qwen3ForCausalLM", has_window: true, rope: RopeForm::PLAIN, read };

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let defaults = Defaults { kv_heads: Some(KV_HEADS_DEFAULT), head_dim: Some(HEAD_DIM_DEFAULT), tied: false };
    let spec = common(&QWEN3, config, defaults)?;
    let bias = config.flag("attention_bias", false)?;
    let attention = config.attention_by_layer(spec.layers, WINDOW_LAYER_DEFAULT)?;
    Ok(ModelSpec { qkv_bias: bias, output_bias: bias, qk_norm: QkNorm::Heads, attention, ..spec })
}
