//! OLMo 2 (`Olmo2ForCausalLM`): Llama's form with norms after attention and feed-forward instead of before, and
//! norms on queries and keys over all heads together.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::{ModelSpec, NormPlacement, QkNorm};

/// The family.
pub(super) static OLMO2: Family =
    Family { model_type: "olmo2", architecture: "Olmo2ForCausalLM", has_window: false, rope: RopeForm::PLAIN, read };

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = common(&OLMO2, config, Defaults { kv_heads: None, head_dim: None, tied: false })?;
    let bias = config.flag("attention_bias", false)?;
    Ok(ModelSpec { norms: NormPlacement::After, qk_norm: QkNorm::Width, qkv_bias: bias, output_bias: bias, ..spec })
}
