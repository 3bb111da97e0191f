//! The fields that make the prompt of messages: `system`, `messages`, and what hangs on them.

use crate::api::{Conversation, Fields, model, sort, typed};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use engine::text::PromptEnd;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The field that holds the prompt.
pub(super) const MESSAGES: &str = "messages";
/// How long a cached prefix may be asked to stay.
const TTLS: [&str; 2] = ["5m", "1h"];

/// A prompt, and whether the answer goes on with the text of its last message.
pub(super) struct Prompt {
    pub(super) tokens: Vec<Token>,
    pub(super) goes_on: bool,
}

/// Takes the fields that make the prompt, and makes it. Errors: what the client has to fix.
pub(super) fn take(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Prompt, ApiError> {
    model(fields, card)?;
    let mut messages = Vec::new();
    if let Some(raw) = fields.raw("system") {
        messages.push(json!({ "role": "system", "content": text(raw, "system")? }));
    }
    let raws: Vec<&RawValue> = typed(fields.required(MESSAGES)?, MESSAGES, "an array of messages")?;
    if raws.is_empty() {
        return Err(ApiError::field(MESSAGES, "'messages' is empty; there must be at least one message."));
    }
    for (at, raw) in raws.iter().enumerate() {
        messages.push(message(raw, &format!("{MESSAGES}[{at}]"))?);
    }
    refuse_unsupported(fields)?;
    // A last message of the assistant is the beginning of the answer.
    let goes_on = messages.last().is_some_and(|last| last["role"] == "assistant");
    let end = if goes_on { PromptEnd::OpenMessage } else { PromptEnd::Answer };
    let tokens = Conversation { messages, end, variables: Map::new() }.tokens(MESSAGES, card)?;
    Ok(Prompt { tokens, goes_on })
}

/// Returns how many tokens the prompt of a body has, as `POST /v1/messages/count_tokens` answers it. Takes time with
/// the length of the body. Errors: what the client has to fix.
pub(crate) fn count_tokens(body: &[u8], card: &ModelCard) -> Result<Value, ApiError> {
    let mut fields = Fields::of_body(body)?;
    let prompt = take(&mut fields, card)?;
    fields.finish()?;
    Ok(json!({ "input_tokens": prompt.tokens.len() }))
}

/// Refuses tools, thinking, and what else a text-only model without them cannot do.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    for list in ["tools", "mcp_servers"] {
        fields.neutral(list, &[json!([])])?;
    }
    fields.neutral("tool_choice", &[json!({ "type": "none" })])?;
    fields.neutral("thinking", &[json!({ "type": "disabled" })])?;
    for field in ["container", "context_management", "output_config", "output_format"] {
        fields.neutral(field, &[])?;
    }
    cache_control(fields)
}

/// Returns a message as a template takes it.
fn message(raw: &RawValue, name: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::of_field(raw, name)?;
    let role = fields.string("role")?.ok_or_else(|| ApiError::missing(&fields.name("role")))?;
    if !["user", "assistant", "system"].contains(&role.as_str()) {
        let field = fields.name("role");
        return Err(ApiError::field(&field, format!("'{field}' is '{role}'; it must be user or assistant.")));
    }
    let content = text(fields.required("content")?, &fields.name("content"))?;
    fields.finish()?;
    Ok(json!({ "role": role, "content": content }))
}

/// Reads a text: a string, or blocks of the type `text`, one after the other.
fn text(raw: &RawValue, name: &str) -> Result<String, ApiError> {
    match raw.get().as_bytes()[0] {
        b'"' => typed(raw, name, "a string"),
        b'[' => {
            let blocks: Vec<&RawValue> = typed(raw, name, "an array of blocks")?;
            let texts = blocks.iter().enumerate().map(|(at, raw)| block(raw, &format!("{name}[{at}]")));
            texts.collect()
        }
        _ => Err(ApiError::field_type(
            name,
            format!("'{name}' must be a string or an array of blocks, not {}.", sort(raw)),
        )),
    }
}

/// Reads the text of a block.
fn block(raw: &RawValue, name: &str) -> Result<String, ApiError> {
    let mut block = Fields::of_field(raw, name)?;
    let kind = block.string("type")?.ok_or_else(|| ApiError::missing(&block.name("type")))?;
    if kind != "text" {
        let message = format!("'{name}' is a block of type '{kind}'; this service takes text only.");
        return Err(ApiError::unsupported(name, message));
    }
    let text = block.string("text")?.ok_or_else(|| ApiError::missing(&block.name("text")))?;
    cache_control(&mut block)?;
    block.neutral("citations", &[json!([]), json!({ "enabled": false })])?;
    block.finish()?;
    Ok(text)
}

/// Checks a hint that a prefix will come again. Every prefix is cached here, hinted at or not.
fn cache_control(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    const FIELD: &str = "cache_control";
    let name = fields.name(FIELD);
    let Some(raw) = fields.raw(FIELD) else { return Ok(()) };
    let mut inner = Fields::of_field(raw, &name)?;
    inner.neutral("type", &[json!("ephemeral")])?;
    inner.neutral("ttl", &TTLS.map(Value::from))?;
    inner.finish()
}
