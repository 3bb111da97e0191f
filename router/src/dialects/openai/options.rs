//! The fields that chats and completions share: how to sample, when to stop, what to report.

use super::structure;
use crate::api::{Fields, Limits, Options, at_least, in_vocabulary, stop_strings, typed};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::{SamplingParams, Token};
use engine::text::SpecialTokens;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Most stop token ids of a request.
const STOP_TOKENS_MAX: usize = 128;
/// Most tokens with a bias.
const BIASES_MAX: usize = 1024;

/// Longest salt of the cache, in bytes.
const SALT_BYTES_MAX: usize = 1024;

/// Takes the shared fields. `max_tokens` and log probabilities are spelled differently in chats and completions
/// and come as arguments. `goes_on` and `best` are not among them: the answer begins a text, and is told as a whole.
pub(super) fn take(
    fields: &mut Fields<'_>,
    card: &ModelCard,
    limits: &Limits,
    max_tokens: Option<u32>,
    logprobs: Option<u32>,
) -> Result<Options, ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let include_usage = include_usage(fields, stream)?;
    let sampled = sampled(fields, card, limits, max_tokens, logprobs)?;
    let tells_tokens = fields.flag("return_token_ids")?.unwrap_or(false);
    let cache_salt = cache_salt(fields)?;
    take_inert(fields)?;
    refuse_extensions(fields)?;
    Ok(Options { stream, include_usage, tells_tokens, cache_salt, ..sampled })
}

/// Takes those of the shared fields that say how to sample, what ends an answer, and what its text is.
pub(super) fn sampled(
    fields: &mut Fields<'_>,
    card: &ModelCard,
    limits: &Limits,
    max_tokens: Option<u32>,
    logprobs: Option<u32>,
) -> Result<Options, ApiError> {
    let choices = fields.integer("n", 1..=i64::from(limits.choices_max))?.unwrap_or(1) as u16;
    let params = sampling(fields, card, max_tokens, logprobs)?;
    let stops = stop_strings(fields, "stop")?;
    let seed = fields.integer("seed", i64::MIN..=i64::MAX)?.map(|seed| seed as u64);
    let special_tokens = match fields.flag("skip_special_tokens")?.unwrap_or(true) {
        true => SpecialTokens::Hidden,
        false => SpecialTokens::Shown,
    };
    let shows_stop = fields.flag("include_stop_str_in_output")?.unwrap_or(false);
    let structure = structure::take(fields)?;
    refuse_samplers(fields)?;
    Ok(Options {
        params,
        max_tokens,
        choices,
        stops,
        seed,
        special_tokens,
        shows_stop,
        structure,
        ..Options::default()
    })
}

/// Takes how to sample; where the client does not say, the model does.
fn sampling(
    fields: &mut Fields<'_>,
    card: &ModelCard,
    max_tokens: Option<u32>,
    logprobs: Option<u32>,
) -> Result<SamplingParams, ApiError> {
    let defaults = &card.sampling;
    let mut stop_tokens = stop_tokens(fields, card)?;
    if !fields.flag("ignore_eos")?.unwrap_or(false) {
        stop_tokens.extend_from_slice(&card.eos);
    }
    stop_tokens.sort_unstable();
    stop_tokens.dedup();
    let min_tokens = at_least(fields, "min_tokens", 0)?.unwrap_or(0);
    let params = SamplingParams {
        temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(defaults.temperature),
        top_p: top_p(fields)?.unwrap_or(defaults.top_p),
        // vLLM and Hugging Face write "off" as -1 and 0.
        top_k: fields.integer("top_k", -1..=i64::from(u32::MAX))?.map_or(defaults.top_k, |k| k.max(0) as u32),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(defaults.min_p),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(defaults.presence_penalty),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(defaults.frequency_penalty),
        repetition_penalty: fields.number("repetition_penalty", 0.01..=10.0)?.unwrap_or(defaults.repetition_penalty),
        logit_bias: logit_bias(fields, card)?,
        logprobs,
        stop_tokens,
        min_tokens,
        grammar: None,
        max_tokens: max_tokens.unwrap_or(u32::MAX),
    };
    if max_tokens.is_some_and(|most| min_tokens > most) {
        let message = format!("'min_tokens' ({min_tokens}) is above the most output tokens ({}).", params.max_tokens);
        return Err(ApiError::field("min_tokens", message));
    }
    Ok(params)
}

/// Takes `cache_salt`.
pub(super) fn cache_salt(fields: &mut Fields<'_>) -> Result<Option<String>, ApiError> {
    const SALT: &str = "cache_salt";
    match fields.string(SALT)? {
        Some(salt) if salt.is_empty() || salt.len() > SALT_BYTES_MAX => {
            let message = format!("'{SALT}' must have 1 to {SALT_BYTES_MAX} bytes, not {}.", salt.len());
            Err(ApiError::field(SALT, message))
        }
        salt => Ok(salt),
    }
}

/// Refuses ways to sample that users of vLLM know and this service does not, except in the values that ask for nothing.
fn refuse_samplers(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    for field in ["prompt_logprobs", "truncate_prompt_tokens", "allowed_token_ids"] {
        fields.neutral(field, &[])?;
    }
    fields.neutral("bad_words", &[json!([])])?;
    fields.neutral("use_beam_search", &[json!(false)])?;
    fields.neutral("spaces_between_special_tokens", &[json!(true)])
}

/// Refuses what else users of vLLM know and this service does not, except in the values that ask for nothing.
fn refuse_extensions(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    // A template is a program, and no client may run its own here: what it takes in memory has no bound.
    fields.neutral("chat_template", &[])?;
    fields.neutral("priority", &[json!(0)])
}

/// Takes fields that say whom a request is for, how it is to be billed or kept, or how long an answer should be. The
/// answer does not depend on them.
fn take_inert(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    let words =
        ["user", "safety_identifier", "service_tier", "verbosity", "prompt_cache_key", "prompt_cache_retention"];
    for field in words {
        fields.string(field)?;
    }
    fields.flag("store")?;
    let metadata = fields.raw("metadata").map(|raw| typed::<Map<String, Value>>(raw, "metadata", "an object"));
    metadata.transpose().map(|_| ())
}

pub(super) fn include_usage(fields: &mut Fields<'_>, stream: bool) -> Result<bool, ApiError> {
    const FIELD: &str = "stream_options";
    let Some(raw) = fields.raw(FIELD) else { return Ok(false) };
    if !stream {
        return Err(ApiError::field(FIELD, "'stream_options' is only allowed when 'stream' is true."));
    }
    let mut inner = Fields::of_field(raw, FIELD)?;
    let include = inner.flag("include_usage")?.unwrap_or(false);
    inner.neutral("include_obfuscation", &[json!(false)])?;
    inner.finish()?;
    Ok(include)
}

fn top_p(fields: &mut Fields<'_>) -> Result<Option<f32>, ApiError> {
    let top_p = fields.number("top_p", 0.0..=1.0)?;
    if top_p == Some(0.0) {
        // The smallest set that reaches nothing is empty; what is meant is the most probable token.
        return Ok(Some(f32::MIN_POSITIVE));
    }
    Ok(top_p)
}

fn stop_tokens(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Vec<Token>, ApiError> {
    const FIELD: &str = "stop_token_ids";
    let Some(raw) = fields.raw(FIELD) else { return Ok(Vec::new()) };
    let tokens: Vec<Token> = typed(raw, FIELD, "an array of token ids")?;
    if tokens.len() > STOP_TOKENS_MAX {
        let message = format!("'{FIELD}' has {} tokens; {STOP_TOKENS_MAX} are allowed.", tokens.len());
        return Err(ApiError::field(FIELD, message));
    }
    in_vocabulary(&tokens, FIELD, card)?;
    Ok(tokens)
}

fn logit_bias(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Vec<(Token, f32)>, ApiError> {
    const FIELD: &str = "logit_bias";
    const BIAS_MAX: f32 = 100.0;
    let Some(raw) = fields.raw(FIELD) else { return Ok(Vec::new()) };
    let biases: BTreeMap<String, f32> = typed(raw, FIELD, "an object from token ids to numbers")?;
    if biases.len() > BIASES_MAX {
        let message = format!("'{FIELD}' has {} tokens; {BIASES_MAX} are allowed.", biases.len());
        return Err(ApiError::field(FIELD, message));
    }
    let mut out = Vec::with_capacity(biases.len());
    for (name, bias) in biases {
        let Ok(token) = name.parse::<Token>() else {
            return Err(ApiError::field(FIELD, format!("'{FIELD}' has the key '{name}', which is no token id.")));
        };
        if !(-BIAS_MAX..=BIAS_MAX).contains(&bias) {
            let message = format!("'{FIELD}' of token {token} must be between -{BIAS_MAX} and {BIAS_MAX}, not {bias}.");
            return Err(ApiError::field(FIELD, message));
        }
        out.push((token, bias));
    }
    out.sort_unstable_by_key(|&(token, _)| token);
    if let Some(twins) = out.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(ApiError::field(FIELD, format!("'{FIELD}' has the token {} twice.", twins[0].0)));
    }
    let tokens: Vec<Token> = out.iter().map(|&(token, _)| token).collect();
    in_vocabulary(&tokens, FIELD, card)?;
    Ok(out)
}
