//! Mistral (`MistralForCausalLM`): Llama's form with one sliding window for all layers, or none.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::ModelSpec;

/// KV heads where a config names none.
const KV_HEADS_DEFAULT: usize = 8;
/// Window where a config does not mention one; `null` means none.
const WINDOW_DEFAULT: u32 = 4096;

/// The family.
pub(super) static MISTRAL: Family =
    Family { model_type: "mistral", architecture: "MistralForCausalLM", has_window: true, rope: RopeForm::PLAIN, read };

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = common(&MISTRAL, config, Defaults { kv_heads: Some(KV_HEADS_DEFAULT), head_dim: None, tied: false })?;
    let window = if config.names("sliding_window") { config.window("sliding_window")? } else { Some(WINDOW_DEFAULT) };
    Ok(ModelSpec { attention: vec![window.into(); spec.layers], ..spec })
}
