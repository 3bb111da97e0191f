//! The text model of Gemma 3 (`Gemma3ForCausalLM`): Gemma 2's form with norms on heads in place of soft caps, and
//! rotary embeddings of their own in layers with a window and in layers without one.

use super::config::{Config, ConfigError, LAYERS_MAX};
use super::family::Family;
use super::gemma2::{attention, gemma, windowed};
use super::rope::RopeForm;
use crate::spec::{ModelSpec, QkNorm, Rope, RopeScaling};

/// One layer in so many has no window, where a config does not say.
const WINDOW_PATTERN_DEFAULT: usize = 6;
/// Frequency base of layers with a window where a config names none.
const LOCAL_THETA_DEFAULT: f64 = 10_000.0;

/// The family.
pub(super) static GEMMA3: Family = Family {
    model_type: "gemma3_text",
    architecture: "Gemma3ForCausalLM",
    has_window: true,
    rope: RopeForm { theta_default: 1_000_000.0, by_layer_type: true, ..RopeForm::PLAIN },
    read,
};

fn read(config: &Config) -> Result<ModelSpec, ConfigError> {
    let spec = gemma(&GEMMA3, config)?;
    let cap = |key| config.positive_or_null(key, None).map(|cap| cap.map(|cap| cap as f32));
    let (attention_cap, logits_cap) = (cap("attn_logit_softcapping")?, cap("final_logit_softcapping")?);
    let pattern = config.count_or("sliding_window_pattern", 1..=LAYERS_MAX, Some(WINDOW_PATTERN_DEFAULT))?;
    let attention = attention(config, spec.layers, pattern)?;
    let local = Rope { theta: local_theta(config)?, dims: spec.head_dim, scaling: RopeScaling::None };
    let of_layer = |(global, windowed): (Rope, bool)| if windowed { local.clone() } else { global };
    let ropes = spec.ropes.into_iter().zip(windowed(config, spec.layers, pattern)?).map(of_layer).collect();
    Ok(ModelSpec { attention_cap, logits_cap, attention, ropes, qk_norm: QkNorm::Heads, ..spec })
}

/// Frequency base of layers with a window, which are never scaled.
fn local_theta(config: &Config) -> Result<f64, ConfigError> {
    let parameters = config.object("rope_parameters")?;
    let local = parameters.map(|parameters| parameters.object("sliding_attention")).transpose()?.flatten();
    let Some(local) = local else {
        return config.positive("rope_local_base_freq", Some(LOCAL_THETA_DEFAULT));
    };
    match local.get("rope_type") {
        Some(kind) if kind != "default" => Err(local.unsupported("rope_type", kind, "default")),
        _ => local.positive("rope_theta", Some(LOCAL_THETA_DEFAULT)),
    }
}
