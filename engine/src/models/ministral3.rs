//! Ministral 3 (`Ministral3ForCausalLM`): Mistral's form with YaRN, and queries that grow with their position.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::{ModelSpec, QueryGrowth};

/// KV heads where a config names none.
const KV_HEADS_DEFAULT: usize = 8;
/// Head width where a config names none.
const HEAD_DIM_DEFAULT: usize = 128;
/// Base of the frequencies where a config names none.
const THETA_DEFAULT: f64 = 1_000_000.0;

/// The family.
pub(super) static MINISTRAL3: Family = Family {
    model_type: "ministral3",
    architecture: "Ministral3ForCausalLM",
    has_window: true,
    rope: RopeForm { types: &["yarn"], theta_default: THETA_DEFAULT, ..RopeForm::PLAIN },
    read,
};

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let defaults = Defaults { kv_heads: Some(KV_HEADS_DEFAULT), head_dim: Some(HEAD_DIM_DEFAULT), tied: false };
    let spec = common(&MINISTRAL3, config, defaults)?;
    let window = config.window("sliding_window")?;
    Ok(ModelSpec { attention: vec![window.into(); spec.layers], query_growth: query_growth(config)?, ..spec })
}

/// Returns how queries grow. The scaling of the rotary embedding says it, since both begin at the original context.
fn query_growth(config: &Config) -> Result<Option<QueryGrowth>, ConfigError> {
    let scaling = config.rope_parameters()?;
    let key = "llama_4_scaling_beta";
    if scaling.get(key).is_none() {
        return Err(scaling.missing(key));
    }
    let beta = scaling.not_negative(key, 0.0)? as f32;
    let original_context = scaling.original_context(config, None)? as u32;
    Ok((beta > 0.0).then_some(QueryGrowth { beta, original_context }))
}
