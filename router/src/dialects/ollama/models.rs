//! What clients of this API ask about the model, and what they are told.

use super::fields::model;
use crate::api::Fields;
use crate::config::ModelCard;
use crate::dialects::time::rfc3339_of_seconds;
use crate::error::ApiError;
use domain::session::Served;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// When the model is taken out of memory: never. No clock of a client overflows on it.
const NEVER: &str = "9999-12-31T00:00:00Z";
/// Stands for the model's architecture, which clients look up to find its context.
const ARCHITECTURE: &str = "baton";

/// Returns the answer to `GET /api/tags`: the model, if the client may ask it. `served`: what workers have, if one was
/// up.
pub(crate) fn tags(card: &ModelCard, served: Option<&Served>, may_ask: bool) -> Value {
    let models: Vec<Value> = may_ask.then(|| Value::Object(listed(card, served))).into_iter().collect();
    json!({ "models": models })
}

/// Returns the answer to `GET /api/ps`: the same once a worker was up, since every model is loaded until its workers
/// end.
pub(crate) fn running(card: &ModelCard, served: Option<&Served>, may_ask: bool) -> Value {
    let Some(served) = served.filter(|_| may_ask) else { return json!({ "models": [] }) };
    let mut model = listed(card, Some(served));
    model.insert("expires_at".to_owned(), json!(NEVER));
    model.insert("size_vram".to_owned(), json!(0));
    model.insert("context_length".to_owned(), json!(served.context_tokens));
    json!({ "models": [model] })
}

/// Returns the answer to `GET /api/version`.
pub(crate) fn version() -> Value {
    json!({ "version": env!("CARGO_PKG_VERSION") })
}

/// Returns the answer to `POST /api/show`. Errors: what the client has to fix.
pub(crate) fn show(body: &[u8], card: &ModelCard, served: Option<&Served>) -> Result<Value, ApiError> {
    let mut fields = Fields::of_body(body)?;
    // Older clients call it so.
    let field = if fields.has("model") || !fields.has("name") { "model" } else { "name" };
    model(&mut fields, field, card)?;
    fields.flag("verbose")?;
    fields.finish()?;
    Ok(json!({
        "modified_at": rfc3339_of_seconds(card.created),
        "parameters": parameters(card),
        "details": details(),
        "capabilities": capabilities(card),
        "model_info": {
            "general.architecture": ARCHITECTURE,
            "general.basename": card.name,
            "baton.context_length": served.map(|served| served.context_tokens),
            "baton.block_count": card.shape.layers,
            "baton.embedding_length": card.shape.hidden,
            "baton.vocab_size": card.shape.vocab,
        },
    }))
}

/// Returns how a list describes the model.
fn listed(card: &ModelCard, served: Option<&Served>) -> Map<String, Value> {
    let mut model = Map::new();
    let mut tell = |field: &str, value: Value| model.insert(field.to_owned(), value);
    tell("name", json!(card.name));
    tell("model", json!(card.name));
    tell("modified_at", json!(rfc3339_of_seconds(card.created)));
    // A router does not know how large its workers' files are.
    tell("size", json!(0));
    tell("digest", json!(served.map_or_else(String::new, digest)));
    tell("details", details());
    model
}

/// Returns what names the weights.
fn digest(served: &Served) -> String {
    served.weights.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes all that is written");
        hex
    })
}

/// Returns what a file would say of the model: workers read it, and a router does not.
fn details() -> Value {
    json!({
        "parent_model": "", "format": "", "family": ARCHITECTURE, "families": [ARCHITECTURE], "parameter_size": "",
        "quantization_level": "",
    })
}

/// Returns how the model samples where a request does not say, one option on each line.
fn parameters(card: &ModelCard) -> String {
    let sampling = &card.sampling;
    [
        ("temperature", sampling.temperature.to_string()),
        ("top_k", sampling.top_k.to_string()),
        ("top_p", sampling.top_p.to_string()),
        ("min_p", sampling.min_p.to_string()),
        ("repeat_penalty", sampling.repetition_penalty.to_string()),
    ]
    .map(|(name, value)| format!("{name:<30} {value}"))
    .join("\n")
}

/// Returns what the model can do.
fn capabilities(card: &ModelCard) -> Vec<&'static str> {
    let all = [
        ("completion", true),
        ("tools", card.forms.has_tools() && card.template.is_some()),
        ("thinking", card.forms.has_reasoning()),
    ];
    all.into_iter().filter_map(|(name, can)| can.then_some(name)).collect()
}
