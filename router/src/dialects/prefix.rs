//! A prefix that an operator names: the prompt of a request, up to where the text of clients goes on.

use super::openai::{Chat, Completion};
use super::{Dialect, parse};
use crate::api::{Fields, Limits, ParsedRequest, Prompt};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;

/// Tokenizes the prompt of a request to either endpoint, whose body this is, as the endpoint does. The body needs no
/// `model`, and a chat ends behind its last message where it does not say how it ends. Takes time with the length of
/// the body. Errors: what the endpoint would answer, or the body has not one prompt.
pub(crate) fn prefix(body: &[u8], card: &ModelCard, limits: &Limits) -> Result<Arc<[Token]>, ApiError> {
    let model = to_raw_value(&card.name).expect("a string is JSON");
    let no: &RawValue = serde_json::from_str("false").expect("it is JSON");
    let mut fields = Fields::of_body(body)?;
    let dialects: [&dyn Dialect; 2] = [&Chat, &Completion];
    let [is_chat, is_completion] = dialects.map(|dialect| fields.has(dialect.prompt_field()));
    let dialect = match (is_chat, is_completion) {
        (true, false) => dialects[0],
        (false, true) => dialects[1],
        _ => {
            let what = "A prefix is the prompt of one request: a chat with 'messages', or a completion with 'prompt'.";
            return Err(ApiError::body(what));
        }
    };
    fields.set_default("model", &model);
    if is_chat {
        fields.set_default("add_generation_prompt", no);
    }
    let ParsedRequest { prompts, .. } = parse(dialect, fields, card, limits)?;
    match <[Prompt; 1]>::try_from(prompts) {
        Ok([Prompt { tokens, .. }]) => Ok(tokens),
        Err(several) => {
            Err(ApiError::field("prompt", format!("'prompt' has {} prompts; a prefix is one.", several.len())))
        }
    }
}

#[cfg(test)]
mod tests;
