//! Model families: what config.json says, which tensors a model has, and the forward pass.
//!
//! [`FAMILIES`] is the table of what is supported. A family's file only reads its config into a [`ModelSpec`]; the
//! forward pass is one definition that follows the spec, and no family knows which device runs it.

pub mod bind;
pub mod config;
pub mod decoder;
mod files;
mod gemma2;
mod gemma3;
mod gguf;
mod granite;
mod info;
mod llama;
mod mistral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
pub mod tensors;
#[cfg(test)]
mod tests;

pub use files::{ModelDescription, ModelError, ModelFiles};
pub use info::{ModelInfo, TensorRow};

use crate::spec::{Activation, ModelSpec, NormPlacement, QkNorm};
use config::{CONTEXT_MAX, Config, ConfigError, HEAD_DIM_MAX, LAYERS_MAX, RopeForm, WIDTH_MAX};
use domain::Dtype;

/// Every family that is supported.
pub static FAMILIES: [&Family; 9] = [
    &llama::LLAMA,
    &mistral::MISTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &phi3::PHI3,
    &olmo2::OLMO2,
    &granite::GRANITE,
];

/// RMS norm's epsilon where a config names none.
const NORM_EPS_DEFAULT: f64 = 1e-6;

/// A family of models: one form of decoder.
#[derive(Debug)]
pub struct Family {
    /// Its name, as `model_type` in config.json says it.
    pub model_type: &'static str,
    /// The name of its class with an output projection, as `architectures` in config.json says it.
    pub architecture: &'static str,
    /// Its layers may have sliding windows.
    pub has_window: bool,
    /// The rotary embeddings that its layers may have.
    rope: RopeForm,
    /// Makes a spec of config.json.
    read: fn(&Config) -> Result<ModelSpec, ConfigError>,
}

/// What a family takes where a config names no value.
struct Defaults {
    /// KV heads; `None`: as many as query heads.
    kv_heads: Option<usize>,
    /// Numbers per head; `None`: `hidden_size / num_attention_heads`.
    head_dim: Option<usize>,
    /// Whether the output projection is the embedding.
    tied: bool,
}

impl Family {
    /// The family with this `model_type`.
    pub fn named(model_type: &str) -> Option<&'static Family> {
        FAMILIES.into_iter().find(|family| family.model_type == model_type)
    }

    /// Whether its rotary embedding may be scaled so, as config.json spells it.
    pub fn has_rope_type(&self, kind: &str) -> bool {
        self.rope.types.contains(&kind)
    }

    /// The family that config.json describes. Errors: none does, or its class is not the one with an output projection.
    fn of(config: &Config) -> Result<&'static Family, ConfigError> {
        let architectures = config.get("architectures");
        let class = architectures.and_then(|classes| classes.get(0)).and_then(|class| class.as_str());
        let supported = || FAMILIES.map(|family| format!("{} ({})", family.model_type, family.architecture)).join(", ");
        let by_class = || FAMILIES.into_iter().find(|family| Some(family.architecture) == class);
        let family = match (config.get("model_type"), architectures) {
            (None, None) => return Err(config.missing("model_type")),
            (None, Some(classes)) => {
                by_class().ok_or_else(|| config.unsupported("architectures", classes, supported()))?
            }
            (Some(model_type), _) => model_type
                .as_str()
                .and_then(Family::named)
                .ok_or_else(|| config.unsupported("model_type", model_type, supported()))?,
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
    let family = Family::of(config)?;
    config.refuse_unsupported()?;
    let mut spec = (family.read)(config)?;
    if let Some(generation) = generation {
        for token in generation.tokens("eos_token_id", spec.vocab)? {
            if !spec.eos.contains(&token) {
                spec.eos.push(token);
            }
        }
        spec.bos = spec.bos.or(generation.tokens("bos_token_id", spec.vocab)?.first().copied());
    }
    // A window that no context outgrows is full attention, and full attention is the simpler cache.
    for window in &mut spec.windows {
        *window = window.filter(|tokens| (*tokens as usize) < spec.context);
    }
    Ok(spec)
}

/// What all families read alike; norms before attention and feed-forward only, no biases, norms on heads, windows,
/// scales and caps yet.
fn common(family: &Family, config: &Config, defaults: Defaults) -> Result<ModelSpec, ConfigError> {
    let vocab = config.count("vocab_size", 1..=WIDTH_MAX)?;
    let hidden = config.count("hidden_size", 1..=WIDTH_MAX)?;
    let layers = config.count("num_hidden_layers", 1..=LAYERS_MAX)?;
    let heads = config.count("num_attention_heads", 1..=WIDTH_MAX)?;
    let kv_heads = match defaults.kv_heads {
        Some(default) if !config.names("num_key_value_heads") => default,
        _ => config.count_or("num_key_value_heads", 1..=WIDTH_MAX, Some(heads))?,
    };
    if heads % kv_heads != 0 {
        let expected = format!("a divisor of num_attention_heads ({heads})");
        return Err(config.value_error("num_key_value_heads", &kv_heads.into(), expected));
    }
    let even_share = (hidden % heads == 0).then_some(hidden / heads);
    let head_dim = config.count_or("head_dim", 1..=HEAD_DIM_MAX, defaults.head_dim.or(even_share))?;
    if head_dim % 2 != 0 {
        return Err(config.value_error("head_dim", &head_dim.into(), "even, for the rotary embedding"));
    }
    let context = config.count("max_position_embeddings", 1..=CONTEXT_MAX)?;
    let rope = config.rope(&family.rope, head_dim, context)?;
    Ok(ModelSpec {
        family: family.model_type,
        vocab,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn: config.count("intermediate_size", 1..=WIDTH_MAX)?,
        norms: NormPlacement::Before,
        norm_eps: config.positive("rms_norm_eps", Some(NORM_EPS_DEFAULT))? as f32,
        norm_offset: 0.0,
        activation: config.activation("hidden_act", Activation::Silu)?,
        ropes: vec![rope; layers],
        context,
        tied: config.flag("tie_word_embeddings", defaults.tied)?,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        qk_norm: QkNorm::None,
        fused: false,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        attention_cap: None,
        logits_scale: 1.0,
        logits_cap: None,
        windows: vec![None; layers],
        dtype: config.dtype()?.unwrap_or(Dtype::F32),
        eos: config.tokens("eos_token_id", vocab)?,
        bos: config.tokens("bos_token_id", vocab)?.first().copied(),
    })
}
