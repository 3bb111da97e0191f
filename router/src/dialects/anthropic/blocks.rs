//! The messages of Anthropic's API, made of blocks, as templates of Hugging Face take them.

use crate::api::{Fields, earlier_call, sort, think, typed};
use crate::error::ApiError;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// How long a cached prefix may be asked to stay.
const TTLS: [&str; 2] = ["5m", "1h"];

/// What the blocks of a message say.
#[derive(Default)]
struct Said {
    text: String,
    thought: String,
    calls: Vec<Value>,
    /// What tools answered, each a message of its own.
    results: Vec<Value>,
}

/// Adds a message to `messages`. Results of tools come first, each as a message of the role `tool`.
pub(super) fn message(raw: &RawValue, name: &str, messages: &mut Vec<Value>) -> Result<(), ApiError> {
    let mut fields = Fields::of_field(raw, name)?;
    let role = fields.string("role")?.ok_or_else(|| ApiError::missing(&fields.name("role")))?;
    if !["user", "assistant", "system"].contains(&role.as_str()) {
        let field = fields.name("role");
        return Err(ApiError::field(&field, format!("'{field}' is '{role}'; it must be user or assistant.")));
    }
    let said = content(fields.required("content")?, &fields.name("content"), &role)?;
    fields.finish()?;
    let is_only_results = !said.results.is_empty() && said.text.is_empty();
    messages.extend(said.results);
    if is_only_results {
        return Ok(());
    }
    let mut message = json!({ "role": role, "content": said.text });
    if !said.calls.is_empty() {
        message["tool_calls"] = Value::from(said.calls);
    }
    if !said.thought.is_empty() {
        think(&mut message, &said.thought);
    }
    messages.push(message);
    Ok(())
}

/// Reads what a message of `role` says: a string, or blocks.
fn content(raw: &RawValue, name: &str, role: &str) -> Result<Said, ApiError> {
    let mut said = Said::default();
    match raw.get().as_bytes()[0] {
        b'"' => said.text = typed(raw, name, "a string")?,
        b'[' => {
            let blocks: Vec<&RawValue> = typed(raw, name, "an array of blocks")?;
            for (at, raw) in blocks.iter().enumerate() {
                block(raw, &format!("{name}[{at}]"), role, &mut said)?;
            }
        }
        _ => return Err(no_text(raw, name)),
    }
    Ok(said)
}

/// Reads a text: a string, or blocks of the type `text`, one after the other.
pub(super) fn text(raw: &RawValue, name: &str) -> Result<String, ApiError> {
    match raw.get().as_bytes()[0] {
        b'"' => typed(raw, name, "a string"),
        b'[' => {
            let blocks: Vec<&RawValue> = typed(raw, name, "an array of blocks")?;
            let mut said = Said::default();
            for (at, raw) in blocks.iter().enumerate() {
                // No role but these has blocks of other types.
                block(raw, &format!("{name}[{at}]"), "", &mut said)?;
            }
            Ok(said.text)
        }
        _ => Err(no_text(raw, name)),
    }
}

fn no_text(raw: &RawValue, name: &str) -> ApiError {
    ApiError::field_type(name, format!("'{name}' must be a string or an array of blocks, not {}.", sort(raw)))
}

/// Adds what a block in a message of `role` says.
fn block(raw: &RawValue, name: &str, role: &str, said: &mut Said) -> Result<(), ApiError> {
    let mut block = Fields::of_field(raw, name)?;
    let kind = block.string("type")?.ok_or_else(|| ApiError::missing(&block.name("type")))?;
    let string =
        |block: &mut Fields<'_>, field: &str| block.string(field)?.ok_or_else(|| ApiError::missing(&block.name(field)));
    match (role, kind.as_str()) {
        (_, "text") => {
            said.text += &string(&mut block, "text")?;
            block.neutral("citations", &[json!([]), json!({ "enabled": false })])?;
        }
        ("assistant", "thinking") => {
            said.thought += &string(&mut block, "thinking")?;
            // Thoughts are not signed here.
            block.string("signature")?;
        }
        // A hidden thought of another service, which no model but its own can read.
        ("assistant", "redacted_thinking") => {
            string(&mut block, "data")?;
        }
        ("assistant", "tool_use") => {
            let (id, tool) = (string(&mut block, "id")?, string(&mut block, "name")?);
            let input: Map<String, Value> =
                typed(block.required("input")?, &block.name("input"), "an object, the arguments")?;
            block.raw("caller");
            said.calls.push(earlier_call(&id, &tool, Value::Object(input)));
        }
        ("user", "tool_result") => {
            let id = string(&mut block, "tool_use_id")?;
            let content = block.raw("content").map(|raw| text(raw, &block.name("content"))).transpose()?;
            let content = content.unwrap_or_default();
            // Templates do not tell errors apart: the text says it.
            let is_error = block.flag("is_error")?.unwrap_or(false);
            let content = if is_error { format!("Error: {content}") } else { content };
            said.results.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
        }
        _ => {
            let message = format!("'{name}' is a block of type '{kind}', which this service does not take here.");
            return Err(ApiError::unsupported(name, message));
        }
    }
    cache_control(&mut block)?;
    block.finish()
}

/// Checks a hint that a prefix will come again. Every prefix is cached here, hinted at or not.
pub(super) fn cache_control(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    const FIELD: &str = "cache_control";
    let name = fields.name(FIELD);
    let Some(raw) = fields.raw(FIELD) else { return Ok(()) };
    let mut inner = Fields::of_field(raw, &name)?;
    inner.neutral("type", &[json!("ephemeral")])?;
    inner.neutral("ttl", &TTLS.map(Value::from))?;
    inner.finish()
}
