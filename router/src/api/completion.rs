//! The body of `POST /v1/completions`.

use super::fields::{Fields, sort, typed};
use super::limits::Limits;
use super::options::{self, Options};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use serde_json::json;
use serde_json::value::RawValue;

/// Most alternatives per token in a completion's log probabilities.
const LOGPROBS_MAX: i64 = 5;

/// Tokens of an answer if the request has no limit, as in OpenAI's API.
const MAX_TOKENS_DEFAULT: u32 = 16;

/// Reads the prompts and options from the fields of a completion.
pub(super) fn parse(
    mut fields: Fields<'_>,
    card: &ModelCard,
    limits: &Limits,
) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
    options::model(&mut fields, card)?;
    let prompt = fields.required("prompt")?;
    let max_tokens = options::at_least(&mut fields, "max_tokens", 1)?.or(Some(MAX_TOKENS_DEFAULT));
    let logprobs = fields.integer("logprobs", 0..=LOGPROBS_MAX)?.map(|top| top as u32);
    let options = Options::take(&mut fields, card, limits, max_tokens, logprobs)?;
    fields.neutral("echo", &[json!(false)])?;
    fields.neutral("suffix", &[json!("")])?;
    fields.neutral("response_format", &[options::text_format()])?;
    fields.finish()?;
    Ok((prompts(prompt, card, limits)?, Options { goes_on: true, ..options }))
}

/// Returns whether there is nothing to tokenize in a body: its prompts are tokens, as far as their beginning says.
pub(super) fn has_tokens(body: &[u8]) -> bool {
    let prompt = Fields::of_body(body).ok().and_then(|mut fields| fields.raw("prompt"));
    prompt.is_some_and(|raw| {
        let mut head = raw.get().bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'[');
        head.next().is_some_and(|byte| byte.is_ascii_digit())
    })
}

/// Reads the tokens of the field `prompt`: a text, tokens, or several of either.
fn prompts(raw: &RawValue, card: &ModelCard, limits: &Limits) -> Result<Vec<Vec<Token>>, ApiError> {
    const FIELD: &str = "prompt";
    const WANTED: &str = "a string, an array of strings, an array of token ids, or an array of such arrays";
    let encode = |text: &String| {
        card.tokenizer.encode(text, true).map_err(|error| ApiError::internal(format!("The tokenizer failed: {error}")))
    };
    // The kind is in the first characters, so that each is read straight into what it is.
    let mut head = raw.get().bytes().filter(|byte| !byte.is_ascii_whitespace());
    let tokens = match (head.next(), head.next()) {
        (Some(b'"'), _) => vec![encode(&typed(raw, FIELD, WANTED)?)?],
        (Some(b'['), Some(b']')) => return Err(ApiError::field(FIELD, "'prompt' is empty.")),
        (Some(b'['), Some(b'"')) => {
            let texts: Vec<String> = typed(raw, FIELD, WANTED)?;
            fits_batch(texts.len(), limits)?;
            texts.iter().map(encode).collect::<Result<_, _>>()?
        }
        (Some(b'['), Some(b'[')) => {
            let batch: Vec<Vec<Token>> = typed(raw, FIELD, WANTED)?;
            fits_batch(batch.len(), limits)?;
            batch
        }
        (Some(b'['), Some(_)) => vec![typed(raw, FIELD, WANTED)?],
        _ => return Err(ApiError::field_type(FIELD, format!("'{FIELD}' must be {WANTED}, not {}.", sort(raw)))),
    };
    for prompt in &tokens {
        if prompt.is_empty() {
            return Err(ApiError::field(FIELD, "'prompt' is empty; there must be at least one token."));
        }
        options::in_vocabulary(prompt, FIELD, card)?;
    }
    Ok(tokens)
}

fn fits_batch(prompts: usize, limits: &Limits) -> Result<(), ApiError> {
    let most = limits.prompts_max;
    if prompts <= most {
        return Ok(());
    }
    Err(ApiError::field("prompt", format!("'prompt' has {prompts} prompts; {most} are allowed in one request.")))
}
