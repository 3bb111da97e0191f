//! Llama 2 and 3.x (`LlamaForCausalLM`), and the many models that share its form.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::ModelSpec;

/// The family.
pub(super) static LLAMA: Family =
    Family { model_type: "llama", architecture: "LlamaForCausalLM", has_window: false, rope: RopeForm::PLAIN, read };

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = common(&LLAMA, config, Defaults { kv_heads: None, head_dim: None, tied: false })?;
    let bias = config.flag("attention_bias", false)?;
    Ok(ModelSpec { qkv_bias: bias, output_bias: bias, mlp_bias: config.flag("mlp_bias", false)?, ..spec })
}
