//! The table of families, and the one that a config.json describes.

use super::config::{Config, ConfigError};
use super::family::Family;
use super::unsupported::{refuse_experts, unknown_family};
use super::{gemma2, gemma3, granite, llama, ministral3, mistral, olmo2, phi3, qwen2, qwen3, wrapper};
use crate::spec::ModelSpec;

/// Every family that is supported.
pub static FAMILIES: [&Family; 10] = [
    &llama::LLAMA,
    &mistral::MISTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &phi3::PHI3,
    &olmo2::OLMO2,
    &granite::GRANITE,
    &ministral3::MINISTRAL3,
];

impl Family {
    /// Returns the family with this `model_type`.
    pub fn named(model_type: &str) -> Option<&'static Family> {
        FAMILIES.into_iter().find(|family| family.model_type == model_type)
    }

    /// Returns the family that config.json describes. Errors: none does, or its class is not the one with an output
    /// projection.
    fn of(config: &Config) -> Result<&'static Family, ConfigError> {
        let architectures = config.get("architectures");
        let class = architectures.and_then(|classes| classes.get(0)).and_then(|class| class.as_str());
        let supported = || FAMILIES.map(|family| format!("{} ({})", family.model_type, family.architecture)).join(", ");
        let by_class = || FAMILIES.into_iter().find(|family| Some(family.architecture) == class);
        let family = match (config.get("model_type"), architectures) {
            (None, None) => return Err(config.missing("model_type")),
            (None, Some(classes)) => {
                by_class().ok_or_else(|| unknown_family("architectures", &classes[0], config, supported()))?
            }
            (Some(model_type), _) => model_type
                .as_str()
                .and_then(Family::named)
                .ok_or_else(|| unknown_family("model_type", model_type, config, supported()))?,
        };
        match architectures {
            Some(classes) if class != Some(family.architecture) => {
                Err(config.unsupported("architectures", classes, family.architecture))
            }
            _ => Ok(family),
        }
    }
}

/// The spec that config.json and, where there is one, generation_config.json describe. The number format is the
/// one that config.json names, f32 where it names none.
pub fn read_spec(config: &Config, generation: Option<&Config>) -> Result<ModelSpec, ConfigError> {
    let text = wrapper::language_model(config)?;
    let model = text.as_ref().unwrap_or(config);
    let family = Family::of(model)?;
    refuse_experts(family.model_type, config)?;
    let mut spec = (family.read)(model)?;
    if text.is_some() {
        wrapper::add_outer(config, &mut spec)?;
    }
    if let Some(generation) = generation {
        for token in generation.tokens("eos_token_id", spec.vocab)? {
            if !spec.eos.contains(&token) {
                spec.eos.push(token);
            }
        }
        spec.bos = spec.bos.or(generation.tokens("bos_token_id", spec.vocab)?.first().copied());
    }
    // A window that no context outgrows is full attention, and full attention is the simpler cache.
    for attention in &mut spec.attention {
        *attention = attention.window().filter(|&tokens| (tokens as usize) < spec.context).into();
    }
    Ok(spec)
}
