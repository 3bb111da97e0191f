//! Phi-3 and Phi-4 (`Phi3ForCausalLM`): Llama's form with fused projections, one sliding window for all layers or
//! none, and a rotary embedding that may be scaled by a factor for each frequency and leave a part of each head as
//! it is.

use super::config::{Config, ConfigError};
use super::family::{Defaults, Family, common};
use super::rope::RopeForm;
use crate::spec::ModelSpec;

/// The family.
pub(super) static PHI3: Family = Family {
    model_type: "phi3",
    architecture: "Phi3ForCausalLM",
    has_window: true,
    rope: RopeForm { types: &["default", "longrope"], partial: true, ..RopeForm::PLAIN },
    read,
};

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = common(&PHI3, config, Defaults { kv_heads: None, head_dim: None, tied: false })?;
    let window = config.window("sliding_window")?;
    Ok(ModelSpec { fused: true, attention: vec![window.into(); spec.layers], ..spec })
}
