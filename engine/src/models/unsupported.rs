//! Models that are not computed here: what they need, and what works instead. All of it is told by config.json or by
//! the header of a GGUF file, before any weights are read.
//!
//! What is deliberately absent: what the families themselves refuse (an activation, a rope scaling), weights that are
//! quantised in another way (`quantisation` knows it), and number formats of GGUF (those are the checkpoint's).

mod table;
#[cfg(test)]
mod tests;

use super::config::Config;
use super::refusal::{Feature, Refusal};
use crate::checkpoint::gguf::{GgufError, GgufFile};
use serde_json::Value;
use table::{ANY, ROWS, instead_of_experts};

/// Returns why no family has the name that stands at `key`, by the table and by what else `config` says. `supported`:
/// the families.
pub(super) fn unknown_family(key: &str, found: &Value, config: &Config, supported: String) -> Refusal {
    let name = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    let class = config.get("architectures").and_then(|classes| classes.get(0)).and_then(Value::as_str);
    let mut seen = seen_in(config);
    if seen.is_empty() && class.is_some_and(|class| class.contains("Moe")) {
        seen.push(Feature::Experts);
    }
    unknown_name(key, name, seen, supported)
}

/// Returns why the architecture of a GGUF file is none that is read. `supported`: those that are.
pub(super) fn unknown_architecture(architecture: &str, supported: String) -> Refusal {
    unknown_name("general.architecture", architecture.to_owned(), Vec::new(), supported)
}

fn unknown_name(key: &str, found: String, seen: Vec<Feature>, supported: String) -> Refusal {
    let key = key.to_owned();
    match ROWS.iter().find(|row| row.names.contains(&found.as_str())) {
        Some(row) => Refusal::Needs { key, found, needs: row.needs.to_vec(), instead: row.instead.to_string() },
        None if !seen.is_empty() => Refusal::Needs { key, found, needs: seen, instead: ANY.to_string() },
        None => Refusal::Unknown { key, found, supported, instead: ANY.to_string() },
    }
}

/// Refuses a config of a supported family that nevertheless has experts.
pub(super) fn refuse_experts(model_type: &str, config: &Config) -> Result<(), Refusal> {
    if !seen_in(config).contains(&Feature::Experts) {
        return Ok(());
    }
    let (key, found) = ("model_type".to_owned(), model_type.to_owned());
    let instead = instead_of_experts(model_type).to_string();
    Err(Refusal::Needs { key, found, needs: vec![Feature::Experts], instead })
}

/// Keys of config.json that say how many experts there are.
const EXPERTS: [&str; 6] =
    ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "n_experts"];
/// Keys that only models with a feature have.
const MARKS: [(&str, Feature); 10] = [
    ("kv_lora_rank", Feature::LatentAttention),
    ("index_topk", Feature::SparseAttention),
    ("mamba_d_state", Feature::StateSpace),
    ("mamba_num_heads", Feature::StateSpace),
    ("ssm_state_size", Feature::StateSpace),
    ("ssm_cfg", Feature::StateSpace),
    ("linear_num_key_heads", Feature::LinearAttention),
    ("conv_L_cache", Feature::Convolution),
    ("vision_config", Feature::Images),
    ("audio_config", Feature::Sound),
];

/// Returns what a config shows that its model needs, whatever the model is called. The text model that a config wraps
/// is looked at, too.
fn seen_in(config: &Config) -> Vec<Feature> {
    let mut seen = Vec::new();
    let mut see = |feature| {
        if !seen.contains(&feature) {
            seen.push(feature);
        }
    };
    let text = config.object("text_config").ok().flatten();
    for config in std::iter::once(config).chain(&text) {
        let count = |key: &&str| config.get(key).and_then(Value::as_u64).unwrap_or(0);
        if EXPERTS.iter().any(|key| count(key) > 1) {
            see(Feature::Experts);
        }
        for (_, feature) in MARKS.iter().filter(|(key, _)| config.get(key).is_some()) {
            see(*feature);
        }
        let layers = config.get("layer_types").and_then(Value::as_array).into_iter().flatten();
        for layer in layers.filter_map(Value::as_str) {
            match layer {
                "linear_attention" | "recurrent" => see(Feature::LinearAttention),
                "mamba" => see(Feature::StateSpace),
                "conv" => see(Feature::Convolution),
                _ => {}
            }
        }
        if config.get("is_encoder_decoder").and_then(Value::as_bool) == Some(true) {
            see(Feature::EncoderDecoder);
        }
    }
    seen
}

/// Refuses a GGUF file that holds no language model, and one of a supported family that has experts. Errors of the file
/// itself are [`GgufError`]s.
pub(super) fn refuse_gguf(file: &GgufFile) -> Result<Option<Refusal>, GgufError> {
    if let Some(refusal) = no_language_model(file)? {
        return Ok(Some(refusal));
    }
    let architecture = file.architecture()?;
    // Files of early converters have a tensor for each expert.
    let has_experts = file.hyperparameter("expert_count")?.is_some_and(|count| count > 1)
        || file.has("blk.0.ffn_gate_exps.weight")
        || file.has("blk.0.ffn_gate.0.weight");
    let is_named = ROWS.iter().any(|row| row.names.contains(&architecture));
    if !has_experts || is_named {
        return Ok(None);
    }
    let (key, instead) = (format!("{architecture}.expert_count"), instead_of_experts(architecture).to_string());
    let found = file.hyperparameter("expert_count")?.map_or_else(|| "not there".to_owned(), |count| count.to_string());
    Ok(Some(Refusal::Needs { key, found, needs: vec![Feature::Experts], instead }))
}

/// Returns what a GGUF file holds that is no language model, by `general.type` and, of older files, by the
/// architecture.
fn no_language_model(file: &GgufFile) -> Result<Option<Refusal>, GgufError> {
    let kind = file.text("general.type")?;
    let architecture = file.text("general.architecture")?;
    let (key, found) = match (kind, architecture) {
        (Some(kind @ ("adapter" | "imatrix" | "mmproj")), _) => ("general.type", kind),
        (_, Some(architecture @ ("clip" | "imatrix" | "controlvector"))) => ("general.architecture", architecture),
        _ => return Ok(None),
    };
    let (what, instead) = match found {
        "adapter" => ("it is an adapter (LoRA) and no model", "the adapter merged into its model, as one file"),
        "imatrix" => ("it holds how important weights are, an aid to quantise", "the model that was quantised with it"),
        "controlvector" => ("it steers a model and is none", "the GGUF file of the model itself"),
        _ => ("it projects images for another model", "the GGUF file of that model, in the same folder or repository"),
    };
    Ok(Some(Refusal::Other { key: key.to_owned(), found: found.to_owned(), what, instead }))
}
