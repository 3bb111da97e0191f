//! What the metadata of a GGUF file says about its model, in the words of config.json, so that the families read it.
//!
//! Source: llama.cpp, the converters in `conversion` and what `src/models` reads.

use super::config::{Config, ConfigError};
use super::error::ModelError;
use super::families;
use super::refusal::Refusal;
use super::unsupported::{refuse_gguf, unknown_architecture};
use crate::checkpoint::gguf::{GgufError, GgufFile};
use crate::spec::{ModelSpec, RopeScaling};
use serde_json::{Map, Value, json};

/// Architectures by their names in GGUF files and in config.json. Mistral is a Llama there, and `mistral3` stands for
/// Ministral 3 too.
const ARCHITECTURES: [(&str, &str); 9] = [
    ("llama", "llama"),
    ("mistral3", "llama"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("phi3", "phi3"),
    ("olmo2", "olmo2"),
    ("granite", "granite"),
];

/// Numbers of YaRN in config.json, and under the architecture's `rope.scaling`. With YaRN, `attn_factor` multiplies the
/// magnitude; converters do not write it.
const YARN_NUMBERS: [(&str, &str); 6] = [
    ("attention_factor", "yarn_attn_factor"),
    ("attn_factor", "attn_factor"),
    ("extrapolation_factor", "yarn_ext_factor"),
    ("beta_fast", "yarn_beta_fast"),
    ("beta_slow", "yarn_beta_slow"),
    ("mscale_all_dim", "yarn_log_multiplier"),
];

/// Names of tokens that end a turn: files name one of them only, and chat models have several.
const ENDS: [&str; 9] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
];

/// Returns the model in the file.
pub(super) fn read_spec(file: &GgufFile) -> Result<ModelSpec, ModelError> {
    let refused = |source: ConfigError| ModelError::Config { path: file.path().to_owned(), source };
    if let Some(refusal) = refuse_gguf(file)? {
        return Err(refused(refusal.into()));
    }
    let model_type = model_type(file.architecture()?).map_err(|refusal| refused(refusal.into()))?;
    let config = Config::parse(config(file, model_type)?.to_string().as_bytes());
    let spec = config.and_then(|config| families::read_spec(&config, None)).map_err(refused)?;
    let mut spec = ModelSpec { norm_offset: 0.0, ..spec };
    // Llama 3.1's scaling is kept as a factor for each frequency.
    if let Some(factors) = file.widened("rope_freqs.weight") {
        for rope in &mut spec.ropes {
            if factors.len() != rope.dims / 2 || !factors.iter().all(|factor| factor.is_normal() && *factor > 0.0) {
                let expected = format!("{} numbers above 0", rope.dims / 2);
                return Err(file.value_error("rope_freqs.weight", format!("{factors:.3?}"), expected).into());
            }
            let factors = factors.iter().map(|factor| f64::from(*factor)).collect();
            rope.scaling = RopeScaling::Long { factors, magnitude: 1.0 };
        }
    }
    Ok(spec)
}

/// Returns the `model_type` of an architecture.
fn model_type(architecture: &str) -> Result<&'static str, Refusal> {
    let known = ARCHITECTURES.into_iter().find(|(name, _)| *name == architecture);
    let supported = || ARCHITECTURES.map(|(name, _)| name).join(", ");
    known.map(|(_, model_type)| model_type).ok_or_else(|| unknown_architecture(architecture, supported()))
}

/// Returns the config.json that describes the model.
fn config(file: &GgufFile, model_type: &str) -> Result<Value, GgufError> {
    let architecture = file.architecture()?;
    let key = |key: &str| format!("{architecture}.{key}");
    let (heads, head_dim) = (file.required("attention.head_count")?, file.head_dim()? as u64);
    if let Some(values) = file.hyperparameter("attention.value_length")?.filter(|values| *values != head_dim) {
        return Err(file.value_error(&key("attention.value_length"), values, format!("that of keys, {head_dim}")));
    }
    let vocab = file.shape("token_embd.weight").ok_or_else(|| file.missing("token_embd.weight"))?[0];
    let epsilon = key("attention.layer_norm_rms_epsilon");
    let mut config = json!({
        "model_type": model_type,
        "vocab_size": vocab,
        "hidden_size": file.required("embedding_length")?,
        "num_hidden_layers": file.required("block_count")?,
        "num_attention_heads": heads,
        "num_key_value_heads": file.hyperparameter("attention.head_count_kv")?.unwrap_or(heads),
        "head_dim": head_dim,
        "intermediate_size": file.required("feed_forward_length")?,
        "max_position_embeddings": file.required("context_length")?,
        "rms_norm_eps": file.number(&epsilon)?.ok_or_else(|| file.missing(&epsilon))?,
        "tie_word_embeddings": !file.has("output.weight"),
        "attention_bias": file.has("blk.0.attn_q.bias"),
        "mlp_bias": file.has("blk.0.ffn_up.bias"),
        "bos_token_id": file.count("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": ends(file)?,
        "partial_rotary_factor": partial_rotary_factor(file, head_dim)?,
        "rope_scaling": rope_scaling(file)?,
    });
    if let Some(theta) = file.number(&key("rope.freq_base"))? {
        config["rope_theta"] = json!(theta);
    }
    add_family_fields(file, architecture, &mut config)?;
    Ok(without_nulls(config, architecture))
}

/// Adds the fields of config.json that only some families have.
fn add_family_fields(file: &GgufFile, architecture: &str, config: &mut Value) -> Result<(), GgufError> {
    let key = |key: &str| format!("{architecture}.{key}");
    let number = |name: &str| file.number(&key(name));
    let window = file.hyperparameter("attention.sliding_window")?.filter(|window| *window > 0);
    match architecture {
        "gemma2" | "gemma3" => {
            config["sliding_window"] = json!(window);
            config["sliding_window_pattern"] = json!(file.hyperparameter("attention.sliding_window_pattern")?);
            config["rope_local_base_freq"] = json!(number("rope.freq_base_swa")?);
            config["attn_logit_softcapping"] = json!(number("attn_logit_softcapping")?);
            config["final_logit_softcapping"] = json!(number("final_logit_softcapping")?);
            config["query_pre_attn_scalar"] = json!(query_scalar(file, architecture)?);
        }
        "phi3" => config["sliding_window"] = json!(window),
        "mistral3" => {
            if let Some(beta) = number("attention.temperature_scale")?.filter(|beta| *beta != 0.0) {
                config["model_type"] = json!("ministral3");
                config["rope_scaling"]["llama_4_scaling_beta"] = json!(beta);
            }
        }
        "olmo2" => {
            if let Some(window) = window {
                return Err(file.value_error(
                    &key("attention.sliding_window"),
                    window,
                    "absent: OLMo 3 is not supported",
                ));
            }
        }
        "granite" => {
            let scales = [
                ("embedding_multiplier", "embedding_scale"),
                ("residual_multiplier", "residual_scale"),
                ("attention_multiplier", "attention.scale"),
                ("logits_scaling", "logit_scale"),
            ];
            for (name, stored) in scales {
                config[name] = json!(number(stored)?.ok_or_else(|| file.missing(&key(stored)))?);
            }
        }
        _ => {}
    }
    Ok(())
}

/// `query_pre_attn_scalar` of a Gemma. The file does not say it; the models with 27 billion parameters, told by their
/// layers, differ.
fn query_scalar(file: &GgufFile, architecture: &str) -> Result<u64, GgufError> {
    let is_large = [("gemma2", 46), ("gemma3", 62)].contains(&(architecture, file.required("block_count")?));
    if is_large {
        Ok(file.required("embedding_length")? / file.required("attention.head_count")?)
    } else {
        Ok(file.head_dim()? as u64)
    }
}

/// The config without what the file does not say; only where `null` says that there is none, it stays.
fn without_nulls(mut config: Value, architecture: &str) -> Value {
    let mut kept = vec!["sliding_window"];
    if architecture == "gemma2" {
        kept.extend(["attn_logit_softcapping", "final_logit_softcapping"]);
    }
    if let Some(values) = config.as_object_mut() {
        values.retain(|key, value| !value.is_null() || kept.contains(&key.as_str()));
    }
    config
}

/// Tokens that end a sequence.
fn ends(file: &GgufFile) -> Result<Vec<u64>, GgufError> {
    let mut ends = Vec::new();
    for name in ["eos", "eot", "eom"] {
        ends.extend(file.count(&format!("tokenizer.ggml.{name}_token_id"))?);
    }
    let tokens = file.texts("tokenizer.ggml.tokens")?.unwrap_or(&[]);
    ends.extend((0..).zip(tokens).filter(|(_, text)| ENDS.contains(&text.as_str())).map(|(token, _)| token));
    let mut seen = Vec::new();
    ends.retain(|token| {
        let new = !seen.contains(token);
        seen.push(*token);
        new
    });
    Ok(ends)
}

/// The share of a head that is rotated, where the file says it.
fn partial_rotary_factor(file: &GgufFile, head_dim: u64) -> Result<Option<f64>, GgufError> {
    let dims = file.hyperparameter("rope.dimension_count")?;
    Ok(dims.filter(|dims| *dims != head_dim).map(|dims| dims as f64 / head_dim as f64))
}

/// `rope_scaling` of config.json; null: none.
fn rope_scaling(file: &GgufFile) -> Result<Value, GgufError> {
    let architecture = file.architecture()?;
    let key = |key: &str| format!("{architecture}.rope.scaling.{key}");
    let mut scaling = Map::new();
    let mut insert = |name: &str, value: Option<Value>| value.map(|value| scaling.insert(name.to_owned(), value));
    let factors = |name: &str| file.widened(&format!("rope_factors_{name}.weight")).map(|factors| json!(factors));
    let kind = file.text(&key("type"))?;
    match kind {
        None | Some("none") if !file.has("rope_factors_long.weight") => return Ok(Value::Null),
        None | Some("none") | Some("longrope") => insert("rope_type", Some(json!("longrope"))),
        Some(kind) => insert("rope_type", Some(json!(kind))),
    };
    insert("factor", file.number(&key("factor"))?.map(|factor| json!(factor)));
    insert("original_max_position_embeddings", file.count(&key("original_context_length"))?.map(|count| json!(count)));
    let numbers: &[_] = if kind == Some("yarn") { &YARN_NUMBERS } else { &[("attention_factor", "attn_factor")] };
    for (name, stored) in numbers {
        insert(name, file.number(&key(stored))?.map(|number| json!(number)));
    }
    if kind == Some("yarn") {
        // Files say one of two magnitudes at most, and llama.cpp takes the other one as 1.
        insert("mscale", Some(json!(1.0)));
    }
    insert("short_factor", factors("short"));
    insert("long_factor", factors("long"));
    Ok(Value::Object(scaling))
}
