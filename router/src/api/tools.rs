//! The tools that a request offers, in the form that templates of Hugging Face take them.

use super::options::Output;
use crate::config::ModelCard;
use crate::error::ApiError;
use crate::output::Tools;
use domain::RequestId;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Most tools of a request.
const TOOLS_MAX: usize = 128;
/// Longest name of a tool, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Most bytes of all tools together.
pub(crate) const TOOLS_BYTES_MAX: usize = 1 << 20;
/// Digits and letters of an id that has nine.
const SHORT_ID: usize = 9;

/// A tool that the model may call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tool {
    /// Its name.
    pub(crate) name: String,
    /// What it does.
    pub(crate) description: Option<String>,
    /// The schema of its parameters; none: it has none.
    pub(crate) parameters: Option<Map<String, Value>>,
    /// Arguments have to keep to all of the schema.
    pub(crate) strict: bool,
}

/// Offers `tools`, which the client gave in `field`, to the model: gives them to its template by `variables`, and
/// returns what tells calls from text. Errors: what the client has to fix, or that the model has no form of calls.
pub(crate) fn offer(
    tools: Vec<Tool>,
    field: &str,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<Output, ApiError> {
    if tools.is_empty() {
        return Ok(Output::default());
    }
    if !card.forms.has_tools() {
        let message = format!(
            "'{field}': the chat template of '{}' shows no form of tool calls that this service knows; 'router.tool_parser' \
             of the service can name one.",
            card.name
        );
        return Err(ApiError::unsupported(field, message));
    }
    if tools.len() > TOOLS_MAX {
        return Err(ApiError::field(field, format!("'{field}' has {} tools; {TOOLS_MAX} are allowed.", tools.len())));
    }
    let mut shown = Vec::with_capacity(tools.len());
    let (mut by_name, mut strict) = (Vec::with_capacity(tools.len()), Vec::new());
    for (at, Tool { name, description, parameters, strict: is_strict }) in tools.into_iter().enumerate() {
        let in_form = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(in_form) {
            let message =
                format!("'{field}[{at}]' is named '{name}'; a name has 1 to {NAME_BYTES_MAX} letters, digits, `_-.`.");
            return Err(ApiError::field(&format!("{field}[{at}]"), message));
        }
        if by_name.iter().any(|(other, _)| *other == name) {
            return Err(ApiError::field(&format!("{field}[{at}]"), format!("'{field}' has the tool '{name}' twice.")));
        }
        let parameters = Value::Object(parameters.unwrap_or_else(no_parameters));
        let mut function = json!({ "name": name, "description": description.unwrap_or_default() });
        function["parameters"] = parameters.clone();
        shown.push(json!({ "type": "function", "function": function }));
        strict.extend(is_strict.then(|| name.clone()));
        by_name.push((name, parameters));
    }
    variables.insert("tools".to_owned(), Value::from(shown));
    let tools = Tools::new(by_name).with_strict(strict);
    Ok(Output { tools: Some(Arc::new(tools)), ..Output::default() })
}

/// Returns the schema of a tool without parameters.
fn no_parameters() -> Map<String, Value> {
    let Value::Object(none) = json!({ "type": "object", "properties": {} }) else { unreachable!("it is an object") };
    none
}

/// Returns a call of an earlier turn as templates take it. `arguments` that are no JSON object stay the text that a
/// model wrote.
pub(crate) fn earlier_call(id: &str, name: &str, arguments: Value) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// Tells a thought of an earlier turn to the template, in the words of the models that have one.
pub(crate) fn think(message: &mut Value, thought: &str) {
    message["reasoning_content"] = Value::from(thought);
    // The template of gpt-oss takes it where the turn says nothing else.
    if message["content"] == "" {
        message["thinking"] = Value::from(thought);
    }
}

/// Tells the template whether the model is to think, as the client says in `field`. Errors: it is to think, and its
/// template shows no reasoning.
pub(crate) fn switch_thinking(
    field: &str,
    thinks: bool,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<(), ApiError> {
    // A model that always thinks does what is asked, and one that never does, too.
    if set_thinking(variables, thinks, card) || !thinks || card.forms.has_reasoning() {
        return Ok(());
    }
    let message = format!("'{field}': the chat template of '{}' shows no reasoning.", card.name);
    Err(ApiError::unsupported(field, message))
}

/// Tells the template how much the model is to think, as the client says in `field`; `none`: not at all. One that asks
/// only whether to think is told that. Errors: it asks neither.
pub(crate) fn set_effort(
    field: &str,
    effort: &str,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<(), ApiError> {
    /// What templates call it.
    const EFFORT: &str = "reasoning_effort";
    let switches = set_thinking(variables, effort != "none", card);
    if card.template.as_ref().is_some_and(|template| template.has(EFFORT)) {
        variables.entry(EFFORT).or_insert(Value::from(effort));
    } else if !switches {
        let message = format!("'{field}': the chat template of '{}' does not ask how much to think.", card.name);
        return Err(ApiError::unsupported(field, message));
    }
    Ok(())
}

/// Sets whether the model is to think before it answers, where its template asks. Returns whether it asks.
fn set_thinking(variables: &mut Map<String, Value>, thinks: bool, card: &ModelCard) -> bool {
    let asks = |name: &str| card.template.as_ref().is_some_and(|template| template.has(name));
    // DeepSeek V3.1 asks for `thinking`, which is also the name of a field of messages: only in a condition it is a
    // variable.
    let names = [("enable_thinking", asks("enable_thinking")), ("thinking", asks("not thinking"))];
    for (name, _) in names.iter().filter(|(_, is_asked)| *is_asked) {
        variables.entry(*name).or_insert(Value::from(thinks));
    }
    names.iter().any(|(_, is_asked)| *is_asked)
}

/// Returns the id of a call: the `call`th of a `sequence` of the answer to `request`. `prefix`: how its API begins ids.
pub(crate) fn call_id(prefix: &str, request: RequestId, sequence: usize, call: usize, card_is_short: bool) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    if !card_is_short {
        return format!("{prefix}{:016x}{sequence:02x}{call:02x}", request.0);
    }
    // Sequences and calls are few: what is added keeps ids of one answer apart.
    let mut number = request.0.wrapping_add((sequence as u64) << 20).wrapping_add(call as u64);
    let digits = (0..SHORT_ID).map(|_| {
        let digit = DIGITS[(number % 36) as usize];
        number /= 36;
        char::from(digit)
    });
    digits.collect()
}
