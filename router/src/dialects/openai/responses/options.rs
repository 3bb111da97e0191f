//! The fields of a response besides its input and its tools.

use super::tools;
use crate::api::{Fields, Options, Structure, at_least, typed};
use crate::config::ModelCard;
use crate::dialects::openai::structure::{self, Place};
use crate::dialects::openai::tools::checked_effort;
use crate::error::ApiError;
use domain::SamplingParams;
use engine::text::SpecialTokens;
use serde_json::{Map, Value, json};

/// Most alternatives per token in log probabilities.
const TOP_LOGPROBS_MAX: i64 = 20;
/// What `include` may name to get log probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";
/// What else it may name: parts of items that this service makes none of.
const INCLUDED: [&str; 7] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];
/// Most entries of `metadata`, and the most characters of a key and of a value.
const METADATA_MAX: (usize, usize, usize) = (16, 64, 512);

/// What a request says besides its input.
pub(super) struct Taken {
    pub(super) options: Options,
    /// What comes before the conversation.
    pub(super) instructions: Option<String>,
    /// Items are left out where the prompt is too long.
    pub(super) truncates: bool,
    /// More variables for the template.
    pub(super) variables: Map<String, Value>,
    /// The fields that the response repeats.
    pub(super) told: Map<String, Value>,
    /// The response is to be kept.
    pub(super) is_kept: bool,
}

/// Takes the fields. Errors: what the client has to fix.
pub(super) fn take(fields: &mut Fields<'_>, card: &ModelCard, has_store: bool) -> Result<Taken, ApiError> {
    let mut variables = Map::new();
    let tools::Taken { output, mut told } = tools::take(fields, &mut variables, card)?;
    let mut tell = |field: &str, value: Value| {
        told.insert(field.to_owned(), value);
    };
    let instructions = fields.string("instructions")?;
    tell("instructions", json!(instructions));
    tell("previous_response_id", json!(fields.string("previous_response_id")?));
    let truncation = fields.string("truncation")?.unwrap_or_else(|| "disabled".to_owned());
    if !["auto", "disabled"].contains(&truncation.as_str()) {
        let message = format!("'truncation' is '{truncation}'; it must be auto or disabled.");
        return Err(ApiError::field("truncation", message));
    }
    tell("truncation", json!(truncation));
    tell("reasoning", reasoning(fields, &mut variables, card)?);
    let (structure, text) = text(fields)?;
    tell("text", text);
    tell("metadata", metadata(fields)?);
    let is_kept = store(fields, has_store)?;
    tell("store", json!(is_kept));
    let max_tokens = at_least(fields, "max_output_tokens", 1)?;
    tell("max_output_tokens", json!(max_tokens));
    let logprobs = logprobs(fields)?;
    tell("top_logprobs", json!(logprobs.unwrap_or(0)));
    let max_tokens_or_all = max_tokens.unwrap_or(u32::MAX);
    let params = SamplingParams { logprobs, max_tokens: max_tokens_or_all, ..params(fields, card, &mut told)? };
    inert(fields, &mut told)?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    stream_options(fields, stream)?;
    refuse_unsupported(fields)?;
    let mut special_tokens = SpecialTokens::Hidden;
    output.shows_in(&mut special_tokens, card);
    let options = Options {
        params,
        max_tokens,
        stream,
        include_usage: true,
        special_tokens,
        output: Some(output),
        structure,
        ..Options::default()
    };
    Ok(Taken { options, instructions, truncates: truncation == "auto", variables, told, is_kept })
}

/// Returns how to sample.
fn params(
    fields: &mut Fields<'_>,
    card: &ModelCard,
    told: &mut Map<String, Value>,
) -> Result<SamplingParams, ApiError> {
    let defaults = &card.sampling;
    let temperature = fields.number("temperature", 0.0..=2.0)?.unwrap_or(defaults.temperature);
    let top_p = fields.number("top_p", 0.0..=1.0)?.unwrap_or(defaults.top_p);
    let sampling = [
        ("temperature", temperature),
        ("top_p", top_p),
        ("presence_penalty", defaults.presence_penalty),
        ("frequency_penalty", defaults.frequency_penalty),
    ];
    told.extend(sampling.map(|(field, value)| (field.to_owned(), shortest(value))));
    let mut stop_tokens = card.eos.clone();
    stop_tokens.sort_unstable();
    stop_tokens.dedup();
    // The smallest set that reaches nothing is empty; what is meant is the most probable token.
    let top_p = top_p.max(f32::MIN_POSITIVE);
    Ok(SamplingParams { temperature, top_p, stop_tokens, ..defaults.clone() })
}

/// Takes fields that say whom a request is for or how it is to be billed. The answer does not depend on them.
fn inert(fields: &mut Fields<'_>, told: &mut Map<String, Value>) -> Result<(), ApiError> {
    for field in ["user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"] {
        told.insert(field.to_owned(), json!(fields.string(field)?));
    }
    fields.string("service_tier")?;
    told.insert("service_tier".to_owned(), json!("default"));
    Ok(())
}

/// Refuses what this service does not have.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.neutral("background", &[json!(false)])?;
    fields.neutral("context_management", &[json!([])])?;
    for field in ["conversation", "prompt"] {
        fields.neutral(field, &[])?;
    }
    Ok(())
}

/// Takes `store`: whether the response is kept. It is by default, if there is a store.
fn store(fields: &mut Fields<'_>, has_store: bool) -> Result<bool, ApiError> {
    match fields.flag("store")? {
        Some(true) if !has_store => {
            let message = "'store' is true, and this service keeps no responses: 'router.responses.store' is not set.";
            Err(ApiError::unsupported("store", message))
        }
        asked => Ok(asked.unwrap_or(has_store)),
    }
}

/// Takes `text`: the form of the answer. Returns also the field as the response repeats it.
fn text(fields: &mut Fields<'_>) -> Result<(Option<Structure>, Value), ApiError> {
    const TEXT: &str = "text";
    const FORMAT: &str = "format";
    let (mut structure, mut format, mut verbosity) = (None, json!({ "type": "text" }), None);
    if let Some(raw) = fields.raw(TEXT) {
        let mut inner = Fields::of_field(raw, TEXT)?;
        if let Some(raw) = inner.raw(FORMAT) {
            structure = structure::format(raw, &inner.name(FORMAT), Place::Beside)?;
            format = typed(raw, FORMAT, "an object")?;
        }
        verbosity = inner.string("verbosity")?;
        inner.finish()?;
    }
    Ok((structure, json!({ FORMAT: format, "verbosity": verbosity.unwrap_or_else(|| "medium".to_owned()) })))
}

/// Takes `reasoning`: how much to think, for a template that asks for it.
fn reasoning(fields: &mut Fields<'_>, variables: &mut Map<String, Value>, card: &ModelCard) -> Result<Value, ApiError> {
    const REASONING: &str = "reasoning";
    let mut effort = None;
    if let Some(raw) = fields.raw(REASONING) {
        let mut inner = Fields::of_field(raw, REASONING)?;
        effort = inner.string("effort")?;
        // No model here writes summaries of what it thinks.
        inner.neutral("summary", &[])?;
        inner.neutral("generate_summary", &[])?;
        inner.finish()?;
    }
    if let Some(effort) = &effort {
        checked_effort(effort, "reasoning.effort", variables, card)?;
    }
    Ok(json!({ "effort": effort, "summary": null }))
}

fn metadata(fields: &mut Fields<'_>) -> Result<Value, ApiError> {
    const METADATA: &str = "metadata";
    let (entries_max, key_max, value_max) = METADATA_MAX;
    let Some(raw) = fields.raw(METADATA) else { return Ok(json!({})) };
    let metadata: Map<String, Value> = typed(raw, METADATA, "an object from strings to strings")?;
    let fits = |(key, value): (&String, &Value)| {
        key.chars().count() <= key_max && value.as_str().is_some_and(|text| text.chars().count() <= value_max)
    };
    if metadata.len() > entries_max || !metadata.iter().all(fits) {
        let message = format!(
            "'{METADATA}' has at most {entries_max} entries; keys have at most {key_max} characters, and values are strings \
             of at most {value_max}."
        );
        return Err(ApiError::field(METADATA, message));
    }
    Ok(Value::Object(metadata))
}

/// Takes what says which log probabilities the response has: `None`: none.
fn logprobs(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    const INCLUDE: &str = "include";
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS_MAX)?;
    let include = match fields.raw(INCLUDE) {
        Some(raw) => typed::<Vec<String>>(raw, INCLUDE, "an array of strings")?,
        None => Vec::new(),
    };
    check_include(include.iter().map(String::as_str))?;
    let wanted = include.iter().any(|name| name == LOGPROBS);
    if !wanted && top.is_some_and(|top| top > 0) {
        let message = format!("'top_logprobs' is only allowed when 'include' has \"{LOGPROBS}\".");
        return Err(ApiError::field("top_logprobs", message));
    }
    Ok(wanted.then_some(top.unwrap_or(0) as u32))
}

/// Checks that all names of `include` are known.
pub(crate) fn check_include<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<(), ApiError> {
    match names.find(|name| *name != LOGPROBS && !INCLUDED.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("'include' has '{name}'; it may have {LOGPROBS}, {}.", INCLUDED.join(", "));
            Err(ApiError::field("include", message))
        }
    }
}

fn stream_options(fields: &mut Fields<'_>, stream: bool) -> Result<(), ApiError> {
    const FIELD: &str = "stream_options";
    let Some(raw) = fields.raw(FIELD) else { return Ok(()) };
    if !stream {
        return Err(ApiError::field(FIELD, "'stream_options' is only allowed when 'stream' is true."));
    }
    let mut inner = Fields::of_field(raw, FIELD)?;
    inner.neutral("include_obfuscation", &[json!(false)])?;
    inner.finish()
}

/// Returns a number with as few digits as tell it from others of its kind.
fn shortest(number: f32) -> Value {
    Value::from(number.to_string().parse::<f64>().unwrap_or_default())
}
