//! The tools of messages.

use super::blocks::cache_control;
use crate::api::{Fields, Output, TOOLS_BYTES_MAX, Tool, offer, typed};
use crate::config::ModelCard;
use crate::dialects::openai::schema;
use crate::error::ApiError;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Takes what says which tools the model may call. Gives them to the template by `variables`.
pub(super) fn take(
    fields: &mut Fields<'_>,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<Output, ApiError> {
    const TOOLS: &str = "tools";
    let tools = match fields.raw(TOOLS) {
        Some(raw) if raw.get().len() > TOOLS_BYTES_MAX => {
            let message = format!("'{TOOLS}' has {} bytes; {TOOLS_BYTES_MAX} are allowed.", raw.get().len());
            return Err(ApiError::field(TOOLS, message));
        }
        Some(raw) => typed::<Vec<&RawValue>>(raw, TOOLS, "an array of tools")?,
        None => Vec::new(),
    };
    let tools = tools.iter().enumerate().map(|(at, raw)| tool(raw, &format!("{TOOLS}[{at}]")));
    let tools = tools.collect::<Result<Vec<Tool>, ApiError>>()?;
    let Some(one_call) = may_call(fields)? else { return Ok(Output::default()) };
    Ok(Output { one_call, ..offer(tools, TOOLS, variables, card)? })
}

/// Takes `tool_choice`. Returns whether the model may call one tool only; `None`: it may call none. That it has to is
/// not promised yet.
fn may_call(fields: &mut Fields<'_>) -> Result<Option<bool>, ApiError> {
    const CHOICE: &str = "tool_choice";
    let Some(raw) = fields.raw(CHOICE) else { return Ok(Some(false)) };
    let mut choice = Fields::of_field(raw, CHOICE)?;
    let kind = choice.string("type")?.ok_or_else(|| ApiError::missing("tool_choice.type"))?;
    let one_call = choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    match kind.as_str() {
        "auto" => choice.finish().map(|()| Some(one_call)),
        "none" => choice.finish().map(|()| None),
        _ => {
            let message = format!("'{CHOICE}.type' is '{kind}'; this service takes auto and none.");
            Err(ApiError::unsupported(CHOICE, message))
        }
    }
}

fn tool(raw: &RawValue, name: &str) -> Result<Tool, ApiError> {
    let mut tool = Fields::of_field(raw, name)?;
    // Tools of other types run on Anthropic's servers.
    tool.neutral("type", &[json!("custom")])?;
    let read = Tool {
        name: tool.string("name")?.ok_or_else(|| ApiError::missing(&tool.name("name")))?,
        description: tool.string("description")?,
        parameters: schema(&mut tool, "input_schema")?,
    };
    if read.parameters.is_none() {
        return Err(ApiError::missing(&tool.name("input_schema")));
    }
    cache_control(&mut tool)?;
    for field in ["strict", "defer_loading", "eager_input_streaming"] {
        tool.neutral(field, &[json!(false)])?;
    }
    tool.finish()?;
    Ok(read)
}
