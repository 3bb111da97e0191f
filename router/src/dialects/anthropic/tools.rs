//! The tools of messages.

use super::blocks::cache_control;
use crate::api::{Fields, Output, TOOLS_BYTES_MAX, Tool, offer, typed};
use crate::config::ModelCard;
use crate::dialects::openai::schema;
use crate::error::ApiError;
use crate::output::Must;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The field that holds the tools.
pub(super) const TOOLS: &str = "tools";

/// Takes what says which tools the model may call. Gives them to the template by `variables`.
pub(super) fn take(
    fields: &mut Fields<'_>,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<Output, ApiError> {
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
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let Some((must, one_call)) = choice(fields, &names)? else { return Ok(Output::default()) };
    Ok(Output { one_call, must, ..offer(tools, TOOLS, variables, card)? })
}

/// Takes `tool_choice`. Returns whether the model has to call one of the tools `names`, and whether it may call one
/// only. `None`: it may call none.
fn choice(fields: &mut Fields<'_>, names: &[&str]) -> Result<Option<(Must, bool)>, ApiError> {
    const CHOICE: &str = "tool_choice";
    let Some(raw) = fields.raw(CHOICE) else { return Ok(Some((Must::May, false))) };
    let mut choice = Fields::of_field(raw, CHOICE)?;
    let kind = choice.string("type")?.ok_or_else(|| ApiError::missing("tool_choice.type"))?;
    let one_call = choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    let must = match kind.as_str() {
        "none" => return choice.finish().map(|()| None),
        "auto" => Must::May,
        "any" => Must::Call,
        "tool" => {
            let name = choice.string("name")?.ok_or_else(|| ApiError::missing("tool_choice.name"))?;
            if !names.contains(&name.as_str()) {
                let message = format!("'{CHOICE}.name' is '{name}', which is none of '{TOOLS}'.");
                return Err(ApiError::field("tool_choice.name", message));
            }
            Must::Name(name)
        }
        _ => {
            let message = format!("'{CHOICE}.type' is '{kind}'; it must be auto, any, tool or none.");
            return Err(ApiError::field("tool_choice.type", message));
        }
    };
    choice.finish()?;
    if must != Must::May && names.is_empty() {
        let message = format!("'{CHOICE}.type' is '{kind}', and '{TOOLS}' has no tool.");
        return Err(ApiError::field("tool_choice.type", message));
    }
    Ok(Some((must, one_call)))
}

fn tool(raw: &RawValue, name: &str) -> Result<Tool, ApiError> {
    let mut tool = Fields::of_field(raw, name)?;
    // Tools of other types run on Anthropic's servers.
    tool.neutral("type", &[json!("custom")])?;
    let read = Tool {
        name: tool.string("name")?.ok_or_else(|| ApiError::missing(&tool.name("name")))?,
        description: tool.string("description")?,
        parameters: schema(&mut tool, "input_schema")?,
        strict: tool.flag("strict")?.unwrap_or(false),
    };
    if read.parameters.is_none() {
        return Err(ApiError::missing(&tool.name("input_schema")));
    }
    cache_control(&mut tool)?;
    tool.neutral("defer_loading", &[json!(false)])?;
    // Arguments are always streamed as they come.
    tool.flag("eager_input_streaming")?;
    tool.finish()?;
    Ok(read)
}
