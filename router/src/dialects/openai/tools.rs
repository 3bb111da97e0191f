//! The tools of a chat, and how much the model is to think.

use crate::api::{Fields, Output, TOOLS_BYTES_MAX, Tool, offer, set_effort, sort, typed};
use crate::config::ModelCard;
use crate::error::ApiError;
use crate::output::Must;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The field, and the template's variable, that says how much to think.
const EFFORT: &str = "reasoning_effort";
/// How much a model can be told to think.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The field that holds the tools.
pub(crate) const TOOLS: &str = "tools";

/// Takes what says which tools the model may call. Gives them to the template by `variables`.
pub(super) fn take(
    fields: &mut Fields<'_>,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<Output, ApiError> {
    let tools = tools(fields)?;
    let one_call = fields.flag("parallel_tool_calls")? == Some(false);
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let Some(must) = choice(fields, &names, named)? else { return Ok(Output::default()) };
    Ok(Output { one_call, must, ..offer(tools, TOOLS, variables, card)? })
}

/// Takes the tools.
pub(crate) fn tools(fields: &mut Fields<'_>) -> Result<Vec<Tool>, ApiError> {
    let tools = match fields.raw(TOOLS) {
        Some(raw) if raw.get().len() > TOOLS_BYTES_MAX => {
            let message = format!("'{TOOLS}' has {} bytes; {TOOLS_BYTES_MAX} are allowed.", raw.get().len());
            return Err(ApiError::field(TOOLS, message));
        }
        Some(raw) => typed::<Vec<&RawValue>>(raw, TOOLS, "an array of tools")?,
        None => Vec::new(),
    };
    tools.iter().enumerate().map(|(at, raw)| tool(raw, &format!("{TOOLS}[{at}]"))).collect()
}

/// Takes `tool_choice`: whether the model has to call one of the tools `names`. `None`: it may call none. `named`:
/// reads which tool an object names.
pub(super) fn choice(
    fields: &mut Fields<'_>,
    names: &[&str],
    named: fn(&RawValue, &str) -> Result<String, ApiError>,
) -> Result<Option<Must>, ApiError> {
    const CHOICE: &str = "tool_choice";
    let Some(raw) = fields.raw(CHOICE) else { return Ok(Some(Must::May)) };
    let choice: Value = typed(raw, CHOICE, "a string or an object")?;
    let must = match choice.as_str() {
        Some("none") => return Ok(None),
        Some("auto") => Must::May,
        Some("required") => Must::Call,
        Some(_) => {
            let message = format!("'{CHOICE}' is {}; it must be none, auto, required or a function.", sort(raw));
            return Err(ApiError::field(CHOICE, message));
        }
        None => Must::Name(named(raw, CHOICE)?),
    };
    if names.is_empty() {
        let message = format!("'{CHOICE}' is only allowed when '{TOOLS}' has a tool.");
        return Err(ApiError::field(CHOICE, message));
    }
    match &must {
        Must::Name(name) if !names.contains(&name.as_str()) => {
            Err(ApiError::field(CHOICE, format!("'{CHOICE}' names '{name}', which is none of '{TOOLS}'.")))
        }
        _ => Ok(Some(must)),
    }
}

/// Reads the name of the function that has to be called.
fn named(raw: &RawValue, field: &str) -> Result<String, ApiError> {
    let mut choice = Fields::of_field(raw, field)?;
    choice.neutral("type", &[json!("function")])?;
    let name = choice.name("function");
    let mut function = Fields::of_field(choice.required("function")?, &name)?;
    choice.finish()?;
    let name = function.string("name")?.ok_or_else(|| ApiError::missing(&function.name("name")))?;
    function.finish()?;
    Ok(name)
}

fn tool(raw: &RawValue, name: &str) -> Result<Tool, ApiError> {
    let mut tool = Fields::of_field(raw, name)?;
    let kind = tool.string("type")?.ok_or_else(|| ApiError::missing(&tool.name("type")))?;
    if kind != "function" {
        let message = format!("'{name}' is a tool of type '{kind}'; this service takes functions.");
        return Err(ApiError::unsupported(&tool.name("type"), message));
    }
    let function_name = tool.name("function");
    let mut function = Fields::of_field(tool.required("function")?, &function_name)?;
    tool.finish()?;
    let read = Tool {
        name: function.string("name")?.ok_or_else(|| ApiError::missing(&function.name("name")))?,
        description: function.string("description")?,
        parameters: schema(&mut function, "parameters")?,
        strict: function.flag("strict")?.unwrap_or(false),
    };
    function.finish()?;
    Ok(read)
}

/// Takes the schema of a tool's parameters.
pub(crate) fn schema(fields: &mut Fields<'_>, field: &str) -> Result<Option<Map<String, Value>>, ApiError> {
    let name = fields.name(field);
    fields.raw(field).map(|raw| typed(raw, &name, "an object, a JSON schema")).transpose()
}

/// Takes `reasoning_effort`, for a template that asks for it, or for whether the model is to think at all.
pub(super) fn effort(
    fields: &mut Fields<'_>,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<(), ApiError> {
    let Some(effort) = fields.string(EFFORT)? else { return Ok(()) };
    checked_effort(&effort, EFFORT, variables, card)
}

/// Tells the template how much the model is to think, where `effort`, which `field` has, is a word that says it.
pub(super) fn checked_effort(
    effort: &str,
    field: &str,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<(), ApiError> {
    if !EFFORTS.contains(&effort) {
        let message = format!("'{field}' is '{effort}'; it must be one of {}.", EFFORTS.join(", "));
        return Err(ApiError::field(field, message));
    }
    set_effort(field, effort, variables, card)
}
