//! Models that read more than text. Their config.json describes several parts. The language model, which alone is
//! served, is its `text_config`.
//!
//! Source of the defaults: Hugging Face transformers, `configuration_gemma3.py`, `configuration_mistral3.py`,
//! `configuration_mistral.py` and `configuration_ministral3.py`.

use super::config::{Config, ConfigError, TIED};
use crate::spec::ModelSpec;
use serde_json::{Value, json};

/// A class of such models.
struct Wrapper {
    /// Its name, as `model_type` in config.json says it.
    model_type: &'static str,
    /// The name of its class with an output projection, as `architectures` in config.json says it.
    architecture: &'static str,
    /// The families of its language models; the first one where `text_config` names none.
    families: &'static [&'static str],
}

/// The classes whose language models are served.
static WRAPPERS: [Wrapper; 2] = [
    Wrapper { model_type: "gemma3", architecture: "Gemma3ForConditionalGeneration", families: &["gemma3_text"] },
    Wrapper {
        model_type: "mistral3",
        architecture: "Mistral3ForConditionalGeneration",
        families: &["mistral", "ministral3"],
    },
];

/// Returns the language model's config of a model with several parts; `None`: config.json is a language model's own.
/// Errors: another class of that model, or a language model that is not supported.
pub(super) fn language_model(config: &Config) -> Result<Option<Config>, ConfigError> {
    let classes = config.get("architectures");
    let class = classes.and_then(|classes| classes.get(0)).and_then(Value::as_str);
    let is_named = |wrapper: &&Wrapper| match config.get("model_type") {
        Some(model_type) => model_type == wrapper.model_type,
        None => class == Some(wrapper.architecture),
    };
    let Some(wrapper) = WRAPPERS.iter().find(is_named) else { return Ok(None) };
    if let Some(classes) = classes.filter(|_| class != Some(wrapper.architecture)) {
        return Err(config.unsupported("architectures", classes, wrapper.architecture));
    }
    let mut text = config.object("text_config")?.ok_or_else(|| config.missing("text_config"))?;
    let family = text.text("model_type")?.unwrap_or(wrapper.families[0]).to_owned();
    if !wrapper.families.contains(&family.as_str()) {
        return Err(text.unsupported("model_type", &family.into(), wrapper.families.join(", ")));
    }
    // A class that is named in here is that of a part.
    text.values.remove("architectures");
    if let Value::Object(defaults) = defaults(&family) {
        for (key, value) in defaults {
            text.values.entry(key).or_insert(value);
        }
    }
    Ok(Some(text))
}

/// Adds to the language model's spec what `config`, the whole config.json, says of it.
pub(super) fn add_outer(config: &Config, spec: &mut ModelSpec) -> Result<(), ConfigError> {
    spec.tied = config.flag(TIED, true)?;
    spec.dtype = config.dtype()?.unwrap_or(spec.dtype);
    let eos = config.tokens("eos_token_id", spec.vocab)?;
    if !eos.is_empty() {
        spec.eos = eos;
    }
    spec.bos = config.tokens("bos_token_id", spec.vocab)?.first().copied().or(spec.bos);
    Ok(())
}

/// Returns what the `text_config` of a family need not say: it holds only what differs from its class. What a family
/// has defaults for is not repeated.
fn defaults(family: &str) -> Value {
    match family {
        "gemma3_text" => json!({
            "model_type": family,
            "vocab_size": 262_208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "max_position_embeddings": 131_072,
            "eos_token_id": 1,
            "bos_token_id": 2,
        }),
        "ministral3" => json!({
            "model_type": family,
            "vocab_size": 131_072,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 34,
            "num_attention_heads": 32,
            "max_position_embeddings": 262_144,
            "rms_norm_eps": 1e-5,
            "eos_token_id": 2,
            "bos_token_id": 1,
        }),
        _ => json!({
            "model_type": family,
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 131_072,
            "eos_token_id": 2,
            "bos_token_id": 1,
        }),
    }
}
