//! The messages of a chat, as templates of Hugging Face take them.

use crate::api::{Fields, earlier_call, text, think, typed};
use crate::error::ApiError;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The field that holds the prompt.
pub(crate) const MESSAGES: &str = "messages";

/// What OpenAI's clients add to an answer, and send back with it: what they have read its text or arguments to be.
const PARSED: &str = "parsed";
const PARSED_ARGUMENTS: &str = "parsed_arguments";

/// The roles that a message can have here, as a template knows them. A developer is a system's later name.
const ROLES: [(&str, &str); 5] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant"), ("tool", "tool")];

/// Returns the messages as a template takes them: `{"role", "content"}`, content as a string, and what else is given: a
/// `name`, the calls and the reasoning of an assistant's turn, and the call that a tool answers.
pub(super) fn messages(raw: &RawValue) -> Result<Vec<Value>, ApiError> {
    let raws: Vec<&RawValue> = typed(raw, MESSAGES, "an array of messages")?;
    if raws.is_empty() {
        return Err(ApiError::field(MESSAGES, "'messages' is empty; there must be at least one message."));
    }
    raws.iter().enumerate().map(|(at, raw)| message(raw, &format!("{MESSAGES}[{at}]"))).collect()
}

fn message(raw: &RawValue, name: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::of_field(raw, name)?;
    let role = fields.string("role")?.ok_or_else(|| ApiError::missing(&fields.name("role")))?;
    let Some((_, role)) = ROLES.iter().find(|(known, _)| *known == role) else {
        let field = fields.name("role");
        let known = ROLES.map(|(known, _)| known).join(", ");
        let message = format!("'{field}' is '{role}'; this service takes {known}.");
        return Err(match role.as_str() {
            "function" => ApiError::unsupported(&field, message),
            _ => ApiError::field(&field, message),
        });
    };
    let mut message = json!({ "role": role });
    let calls = if *role == "assistant" { calls(&mut fields)? } else { Vec::new() };
    message["content"] = Value::from(match fields.raw("content") {
        Some(raw) => text(raw, &fields.name("content"))?,
        // A turn may consist of calls alone.
        None if !calls.is_empty() => String::new(),
        None => return Err(ApiError::missing(&fields.name("content"))),
    });
    if !calls.is_empty() {
        message["tool_calls"] = Value::from(calls);
    }
    match *role {
        "assistant" => {
            let thought = fields.string("reasoning_content")?;
            let thought = fields.string("reasoning")?.or(thought);
            if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
                think(&mut message, &thought);
            }
            fields.raw(PARSED);
        }
        "tool" => {
            let id = fields.string("tool_call_id")?.ok_or_else(|| ApiError::missing(&fields.name("tool_call_id")))?;
            message["tool_call_id"] = Value::from(id);
        }
        _ => {}
    }
    for list in ["tool_calls", "annotations"] {
        fields.neutral(list, &[json!([])])?;
    }
    for field in ["function_call", "tool_call_id", "audio", "refusal"] {
        fields.neutral(field, &[])?;
    }
    if let Some(name) = fields.string("name")? {
        message["name"] = Value::from(name);
    }
    fields.finish()?;
    Ok(message)
}

/// Takes the calls of an earlier turn.
fn calls(fields: &mut Fields<'_>) -> Result<Vec<Value>, ApiError> {
    const CALLS: &str = "tool_calls";
    let name = fields.name(CALLS);
    let Some(raw) = fields.raw(CALLS) else { return Ok(Vec::new()) };
    let raws: Vec<&RawValue> = typed(raw, &name, "an array of calls")?;
    raws.iter().enumerate().map(|(at, raw)| call(raw, &format!("{name}[{at}]"))).collect()
}

fn call(raw: &RawValue, name: &str) -> Result<Value, ApiError> {
    let mut call = Fields::of_field(raw, name)?;
    let id = call.string("id")?.ok_or_else(|| ApiError::missing(&call.name("id")))?;
    call.neutral("type", &[json!("function")])?;
    call.integer("index", 0..=i64::from(u32::MAX))?;
    let mut function = Fields::of_field(call.required("function")?, &call.name("function"))?;
    let tool = function.string("name")?.ok_or_else(|| ApiError::missing(&function.name("name")))?;
    let arguments = function.string("arguments")?.unwrap_or_default();
    function.raw(PARSED_ARGUMENTS);
    function.finish()?;
    call.finish()?;
    // What a model wrote need not be JSON. Then the template gets it as it is.
    let object: Option<Map<String, Value>> = serde_json::from_str(&arguments).ok();
    Ok(earlier_call(&id, &tool, object.map_or(Value::String(arguments), Value::Object)))
}
