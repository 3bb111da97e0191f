//! The items of a conversation, and the prompt that they make.

use super::options::Taken;
use super::response::item_id;
use crate::api::{Conversation, Fields, Limits, earlier_call, sort, think, typed};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use engine::text::PromptEnd;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The field that holds the prompt.
pub(super) const INPUT: &str = "input";
/// The roles that a message can have, as a template knows them.
const ROLES: [(&str, &str); 4] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")];

/// A conversation, an item each, in the form in which the API tells items.
pub(super) struct Items {
    pub(super) items: Vec<Value>,
}

impl Items {
    /// Takes the field and appends its items to `earlier` ones. Those without an id get one in the response `id`.
    /// Errors: what the client has to fix.
    pub(super) fn take(fields: &mut Fields<'_>, earlier: Vec<Value>, id: &str) -> Result<Self, ApiError> {
        let (first, mut items) = (earlier.len(), earlier);
        let raw = fields.required(INPUT)?;
        match raw.get().as_bytes()[0] {
            b'"' => {
                let text: String = typed(raw, INPUT, "a string")?;
                items.push(message("user", vec![part("user", text)]));
            }
            b'[' => {
                let raws: Vec<&RawValue> = typed(raw, INPUT, "an array of items")?;
                for (at, raw) in raws.iter().enumerate() {
                    items.push(item(raw, &format!("{INPUT}[{at}]"))?);
                }
            }
            _ => {
                let message = format!("'{INPUT}' must be a string or an array of items, not {}.", sort(raw));
                return Err(ApiError::field_type(INPUT, message));
            }
        }
        if items.is_empty() {
            return Err(ApiError::field(INPUT, "'input' is empty; there must be at least one item."));
        }
        for (at, item) in items[first..].iter_mut().enumerate().filter(|(_, item)| item["id"].is_null()) {
            // Ids of the output end with digits alone.
            item["id"] = Value::from(item_id(id, prefix(item), &format!("i{at:02x}")));
        }
        Ok(Self { items })
    }

    /// Returns the prompt in tokens. If it is too long and `truncation` is `auto`, the oldest items are left out, up to
    /// a later message of the user: the fewest that let it fit. Takes time with its length.
    pub(super) fn prompt(&self, taken: &Taken, card: &ModelCard, limits: &Limits) -> Result<Vec<Token>, ApiError> {
        let prompt = |from: usize| {
            let system = taken.instructions.as_ref().map(|text| json!({ "role": "system", "content": text }));
            let messages = system.into_iter().chain(messages(&self.items[from..])).collect();
            let variables = taken.variables.clone();
            Conversation { messages, end: PromptEnd::Answer, variables }.tokens(INPUT, card)
        };
        let whole = prompt(0)?;
        let room = limits.context_tokens.saturating_sub(taken.options.max_tokens.unwrap_or(1));
        let most = room.min(limits.prompt_tokens_max) as usize;
        if whole.len() <= most || !taken.truncates {
            return Ok(whole);
        }
        let is_user = |item: &Value| item["type"] == "message" && item["role"] == "user";
        let begins: Vec<usize> = (1..self.items.len()).filter(|&at| is_user(&self.items[at])).collect();
        // Later begins make shorter prompts.
        let (mut low, mut high, mut fitting) = (0, begins.len(), None);
        while low < high {
            let middle = (low + high) / 2;
            let tokens = prompt(begins[middle])?;
            if tokens.len() <= most {
                (high, fitting) = (middle, Some(tokens));
            } else {
                low = middle + 1;
            }
        }
        Ok(fitting.unwrap_or(whole))
    }
}

/// Returns how ids of such items begin.
fn prefix(item: &Value) -> &'static str {
    match item["type"].as_str() {
        Some("function_call") => "fc",
        Some("function_call_output") => "fco",
        Some("reasoning") => "rs",
        _ => "msg",
    }
}

/// Returns a message as an item.
fn message(role: &str, content: Vec<Value>) -> Value {
    json!({ "type": "message", "role": role, "status": "completed", "content": content })
}

/// Returns the text of a message of `role` as a part.
fn part(role: &str, text: String) -> Value {
    match role {
        "assistant" => json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }),
        _ => json!({ "type": "input_text", "text": text }),
    }
}

/// Reads an item.
fn item(raw: &RawValue, name: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::of_field(raw, name)?;
    let kind = fields.string("type")?;
    let id = fields.string("id")?;
    let status = fields.string("status")?;
    let mut item = match kind.as_deref() {
        Some("message") | None => read_message(&mut fields)?,
        Some("function_call") => read_call(&mut fields)?,
        Some("function_call_output") => read_output(&mut fields)?,
        Some("reasoning") => read_reasoning(&mut fields)?,
        Some(kind) => {
            let message = format!(
                "'{name}' is an item of type '{kind}'; this service takes message, function_call, function_call_output and \
                 reasoning."
            );
            return Err(ApiError::unsupported(&fields.name("type"), message));
        }
    };
    fields.finish()?;
    if let Some(id) = id {
        item["id"] = Value::from(id);
    }
    if let Some(status) = status {
        item["status"] = Value::from(status);
    }
    Ok(item)
}

fn read_message(fields: &mut Fields<'_>) -> Result<Value, ApiError> {
    let role = fields.string("role")?.ok_or_else(|| ApiError::missing(&fields.name("role")))?;
    if !ROLES.iter().any(|(known, _)| *known == role) {
        let (field, known) = (fields.name("role"), ROLES.map(|(known, _)| known).join(", "));
        return Err(ApiError::field(&field, format!("'{field}' is '{role}'; this service takes {known}.")));
    }
    // Where a turn has said something before its calls, models that know phases mark it. None is told to the template.
    fields.string("phase")?;
    let (raw, name) = (fields.required("content")?, fields.name("content"));
    let texts = texts(raw, &name, &["input_text", "output_text"])?;
    Ok(message(&role, texts.into_iter().map(|text| part(&role, text)).collect()))
}

/// Reads texts: one as a string, or parts of the types `kinds`.
fn texts(raw: &RawValue, name: &str, kinds: &[&str]) -> Result<Vec<String>, ApiError> {
    match raw.get().as_bytes()[0] {
        b'"' => Ok(vec![typed(raw, name, "a string")?]),
        b'[' => {
            let parts: Vec<&RawValue> = typed(raw, name, "a string or an array of parts")?;
            let texts = parts.iter().enumerate().map(|(at, raw)| part_text(raw, &format!("{name}[{at}]"), kinds));
            texts.collect()
        }
        _ => {
            let message = format!("'{name}' must be a string or an array of parts, not {}.", sort(raw));
            Err(ApiError::field_type(name, message))
        }
    }
}

fn part_text(raw: &RawValue, name: &str, kinds: &[&str]) -> Result<String, ApiError> {
    let mut part = Fields::of_field(raw, name)?;
    let kind = part.string("type")?.ok_or_else(|| ApiError::missing(&part.name("type")))?;
    if !kinds.contains(&kind.as_str()) {
        let message = format!("'{name}' is a part of type '{kind}'; this service takes {} here.", kinds.join(" and "));
        return Err(ApiError::unsupported(&part.name("type"), message));
    }
    let text = part.string("text")?.ok_or_else(|| ApiError::missing(&part.name("text")))?;
    // What an earlier answer had beside its text.
    part.neutral("annotations", &[json!([])])?;
    part.raw("logprobs");
    part.finish()?;
    Ok(text)
}

fn read_call(fields: &mut Fields<'_>) -> Result<Value, ApiError> {
    let call_id = fields.string("call_id")?.ok_or_else(|| ApiError::missing(&fields.name("call_id")))?;
    let name = fields.string("name")?.ok_or_else(|| ApiError::missing(&fields.name("name")))?;
    let arguments = fields.string("arguments")?.unwrap_or_default();
    fields.neutral("namespace", &[])?;
    let call = json!({ "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments });
    Ok(with_status(call))
}

fn read_output(fields: &mut Fields<'_>) -> Result<Value, ApiError> {
    let call_id = fields.string("call_id")?.ok_or_else(|| ApiError::missing(&fields.name("call_id")))?;
    let (raw, name) = (fields.required("output")?, fields.name("output"));
    let output = texts(raw, &name, &["input_text"])?.concat();
    Ok(with_status(json!({ "type": "function_call_output", "call_id": call_id, "output": output })))
}

fn read_reasoning(fields: &mut Fields<'_>) -> Result<Value, ApiError> {
    let mut read = |field: &str, kinds: &[&str]| -> Result<Vec<String>, ApiError> {
        let name = fields.name(field);
        fields.raw(field).map_or(Ok(Vec::new()), |raw| texts(raw, &name, kinds))
    };
    let summary = read("summary", &["summary_text"])?;
    let content = read("content", &["reasoning_text"])?;
    fields.neutral("encrypted_content", &[])?;
    let part = |kind: &'static str| move |text: String| json!({ "type": kind, "text": text });
    let summary: Vec<Value> = summary.into_iter().map(part("summary_text")).collect();
    let content: Vec<Value> = content.into_iter().map(part("reasoning_text")).collect();
    Ok(json!({ "type": "reasoning", "summary": summary, "content": content }))
}

fn with_status(mut item: Value) -> Value {
    item["status"] = Value::from("completed");
    item
}

/// Returns the messages that a template makes a prompt of. Reasoning and calls belong to the message of the assistant
/// next to them.
fn messages(items: &[Value]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    let mut thought = String::new();
    for item in items {
        match item["type"].as_str() {
            Some("reasoning") => {
                thought.push_str(&joined(&item["content"]));
                continue;
            }
            Some("function_call") => {
                let call = call(item);
                match messages.last_mut() {
                    Some(last) if last["role"] == "assistant" && thought.is_empty() => match &mut last["tool_calls"] {
                        Value::Array(calls) => calls.push(call),
                        none => *none = Value::from(vec![call]),
                    },
                    _ => {
                        let message = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
                        messages.push(thinking(message, &thought));
                    }
                }
            }
            Some("function_call_output") => {
                let (id, output) = (&item["call_id"], &item["output"]);
                messages.push(json!({ "role": "tool", "content": output, "tool_call_id": id }));
            }
            _ => {
                let role = item["role"].as_str().unwrap_or_default();
                let known = ROLES.iter().find(|(known, _)| *known == role).map_or(role, |(_, role)| role);
                let message = json!({ "role": known, "content": joined(&item["content"]) });
                messages.push(if known == "assistant" { thinking(message, &thought) } else { message });
            }
        }
        thought.clear();
    }
    messages
}

fn thinking(mut message: Value, thought: &str) -> Value {
    if !thought.is_empty() {
        think(&mut message, thought);
    }
    message
}

fn call(item: &Value) -> Value {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    let arguments = text("arguments");
    // What a model wrote need not be JSON. Then the template gets it as it is.
    let object: Option<Map<String, Value>> = serde_json::from_str(arguments).ok();
    let arguments = object.map_or_else(|| Value::from(arguments), Value::Object);
    earlier_call(text("call_id"), text("name"), arguments)
}

/// Returns the texts of parts, one after the other.
fn joined(parts: &Value) -> String {
    parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect()
}
