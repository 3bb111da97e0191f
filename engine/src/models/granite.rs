//! Granite 3 (`GraniteForCausalLM`): Llama's form with four scales: of the embedding, of what is added to the residual
//! stream, of attention scores and of logits.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::ModelSpec;

/// The family.
pub(super) static GRANITE: Family = Family {
    model_type: "granite",
    architecture: "GraniteForCausalLM",
    has_window: false,
    rope: RopeForm::PLAIN,
    read,
};

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = common(&GRANITE, config, Defaults { kv_heads: None, head_dim: None, tied: false })?;
    let bias = config.flag("attention_bias", false)?;
    let scale = |key| config.positive(key, Some(1.0)).map(|scale| scale as f32);
    Ok(ModelSpec {
        qkv_bias: bias,
        output_bias: bias,
        mlp_bias: config.flag("mlp_bias", false)?,
        embedding_scale: scale("embedding_multiplier")?,
        residual_scale: scale("residual_multiplier")?,
        attention_scale: scale("attention_multiplier")?,
        logits_scale: 1.0 / scale("logits_scaling")?,
        ..spec
    })
}
