//! The fields that chats and completions of this API share: how to sample, how to answer, and how long to keep the
//! model.

use crate::api::{Fields, Options, Structure, set_effort, sort, stop_strings, switch_thinking};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::SamplingParams;
use serde_json::{Map, Value, json};

const OPTIONS: &str = "options";
/// How much a model can be told to think.
const LEVELS: [&str; 4] = ["low", "medium", "high", "max"];
/// What stands for the newest of a model's versions, where a name has no other tag.
const LATEST: &str = ":latest";

/// Options of numbers that say how a model is to be loaded, or what is kept of a context that is full. The model is
/// loaded here, and no answer outgrows its context.
const INERT_NUMBERS: [&str; 6] = ["num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep"];
/// Those of truth values.
const INERT_FLAGS: [&str; 8] =
    ["numa", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock", "embedding_only"];

/// Checks that the request names the model of `card`, with or without the tag `latest`.
pub(super) fn model(fields: &mut Fields<'_>, field: &str, card: &ModelCard) -> Result<(), ApiError> {
    let name = fields.string(field)?.ok_or_else(|| ApiError::missing(field))?;
    let is_known = name == card.name || name.strip_suffix(LATEST) == Some(&card.name);
    if is_known { Ok(()) } else { Err(ApiError::no_model(&name, &card.name)) }
}

/// Takes the shared fields, all but the model. The answer streams unless the client says otherwise.
pub(super) fn take(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Options, ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(true);
    keep_alive(fields)?;
    let structure = format(fields)?;
    fields.neutral("logprobs", &[json!(false)])?;
    fields.neutral("top_logprobs", &[json!(0)])?;
    // A prompt that is too long is an error here.
    for field in ["truncate", "shift"] {
        fields.neutral(field, &[json!(false)])?;
    }
    let options = Options { stream, include_usage: true, params: defaults(card), structure, ..Options::default() };
    match fields.raw(OPTIONS) {
        Some(raw) => sampled(Fields::of_field(raw, OPTIONS)?, options),
        None => Ok(options),
    }
}

/// Takes what the text of the answer has to be: `"json"`, or a schema.
fn format(fields: &mut Fields<'_>) -> Result<Option<Structure>, ApiError> {
    const FORMAT: &str = "format";
    let Some(raw) = fields.raw(FORMAT) else { return Ok(None) };
    match raw.get() {
        "\"\"" => Ok(None),
        "\"json\"" => Ok(Some(Structure::any_object(FORMAT))),
        _ => Structure::schema(raw, FORMAT.to_owned()).map(Some),
    }
}

/// Returns how the model samples where a client does not say.
fn defaults(card: &ModelCard) -> SamplingParams {
    let mut params = SamplingParams { max_tokens: u32::MAX, stop_tokens: card.eos.clone(), ..card.sampling.clone() };
    params.stop_tokens.sort_unstable();
    params.stop_tokens.dedup();
    params
}

/// Takes how long the model is to be kept: it always is.
fn keep_alive(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    const FIELD: &str = "keep_alive";
    match fields.raw(FIELD) {
        Some(raw) if !raw.get().starts_with(|begin: char| begin == '"' || begin == '-' || begin.is_ascii_digit()) => {
            let message =
                format!("'{FIELD}' must be a number of seconds or a duration such as \"5m\", not {}.", sort(raw));
            Err(ApiError::field_type(FIELD, message))
        }
        _ => Ok(()),
    }
}

/// Takes whether the model is to think, or how much.
pub(super) fn think(
    fields: &mut Fields<'_>,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<(), ApiError> {
    const FIELD: &str = "think";
    let Some(raw) = fields.raw(FIELD) else { return Ok(()) };
    match serde_json::from_str(raw.get()) {
        Ok(Value::Bool(thinks)) => switch_thinking(FIELD, thinks, variables, card),
        Ok(Value::String(level)) if LEVELS.contains(&level.as_str()) => set_effort(FIELD, &level, variables, card),
        _ => {
            let message = format!("'{FIELD}' must be a boolean or one of {}, not {}.", LEVELS.join(", "), sort(raw));
            Err(ApiError::field(FIELD, message))
        }
    }
}

/// Takes the fields of `options`.
fn sampled(mut fields: Fields<'_>, options: Options) -> Result<Options, ApiError> {
    let fields_of = &mut fields;
    let max_tokens = num_predict(fields_of)?;
    let stops = stop_strings(fields_of, "stop")?;
    // A seed below 0 asks for a random one.
    let seed = fields_of.integer("seed", i64::MIN..=i64::MAX)?.and_then(|seed| u64::try_from(seed).ok());
    let params = params(fields_of, &options.params)?;
    refuse_samplers(fields_of)?;
    for field in INERT_NUMBERS {
        fields_of.number(field, f32::MIN..=f32::MAX)?;
    }
    for field in INERT_FLAGS {
        fields_of.flag(field)?;
    }
    fields.finish()?;
    let params = SamplingParams { max_tokens: max_tokens.unwrap_or(u32::MAX), ..params };
    Ok(Options { params, max_tokens, stops, seed, ..options })
}

/// Takes the most tokens of an answer. -1 and -2 both ask for what the context has room for.
fn num_predict(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    const FIELD: &str = "num_predict";
    let name = fields.name(FIELD);
    match fields.integer(FIELD, -2..=i64::from(u32::MAX))? {
        Some(0) => {
            let message = format!("'{name}' must be at least 1, or -1 for what the context has room for, not 0.");
            Err(ApiError::field(&name, message))
        }
        most => Ok(most.and_then(|most| u32::try_from(most).ok())),
    }
}

/// Takes how to sample; where the client does not say, by `defaults`.
fn params(fields: &mut Fields<'_>, defaults: &SamplingParams) -> Result<SamplingParams, ApiError> {
    // The smallest set that reaches nothing is empty; what is meant is the most probable token.
    let top_p = fields.number("top_p", 0.0..=1.0)?.map(|top_p| top_p.max(f32::MIN_POSITIVE));
    let top_k = fields.integer("top_k", -1..=i64::from(u32::MAX))?.map(|top_k| top_k.max(0) as u32);
    Ok(SamplingParams {
        temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(defaults.temperature),
        top_p: top_p.unwrap_or(defaults.top_p),
        top_k: top_k.unwrap_or(defaults.top_k),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(defaults.min_p),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(defaults.presence_penalty),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(defaults.frequency_penalty),
        repetition_penalty: fields.number("repeat_penalty", 0.01..=10.0)?.unwrap_or(defaults.repetition_penalty),
        ..defaults.clone()
    })
}

/// Refuses ways to sample that are not known here, except in the values that turn them off.
fn refuse_samplers(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.neutral("mirostat", &[json!(0)])?;
    // They say how, where `mirostat` says whether.
    for field in ["mirostat_tau", "mirostat_eta"] {
        fields.number(field, f32::MIN..=f32::MAX)?;
    }
    for field in ["tfs_z", "typical_p"] {
        fields.neutral(field, &[json!(1), json!(1.0)])?;
    }
    // Penalties look at all earlier tokens, line ends among them.
    fields.neutral("repeat_last_n", &[json!(-1)])?;
    fields.neutral("penalize_newline", &[json!(true)])
}
