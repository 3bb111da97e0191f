//! The tools of a response.

use crate::api::{Fields, Output, TOOLS_BYTES_MAX, Tool, offer, typed};
use crate::config::ModelCard;
use crate::dialects::openai::schema;
use crate::dialects::openai::tools::{TOOLS, choice};
use crate::error::ApiError;
use crate::output::Must;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// What a request says of tools.
pub(super) struct Taken {
    /// What tells calls from text.
    pub(super) output: Output,
    /// The fields as the response repeats them.
    pub(super) told: Map<String, Value>,
}

/// Takes what says which tools the model may call. Gives them to the template by `variables`.
pub(super) fn take(
    fields: &mut Fields<'_>,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<Taken, ApiError> {
    let raws = match fields.raw(TOOLS) {
        Some(raw) if raw.get().len() > TOOLS_BYTES_MAX => {
            let message = format!("'{TOOLS}' has {} bytes; {TOOLS_BYTES_MAX} are allowed.", raw.get().len());
            return Err(ApiError::field(TOOLS, message));
        }
        Some(raw) => typed::<Vec<&RawValue>>(raw, TOOLS, "an array of tools")?,
        None => Vec::new(),
    };
    let tools = raws.iter().enumerate().map(|(at, raw)| tool(raw, &format!("{TOOLS}[{at}]")));
    let tools = tools.collect::<Result<Vec<Tool>, ApiError>>()?;
    let parallel = fields.flag("parallel_tool_calls")?.unwrap_or(true);
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let choice = choice(fields, &names, named)?;
    fields.integer("max_tool_calls", 1..=i64::from(u32::MAX))?;
    let mut told = Map::new();
    told.insert("tools".to_owned(), tools.iter().map(tell).collect());
    told.insert("tool_choice".to_owned(), tell_choice(choice.as_ref()));
    told.insert("parallel_tool_calls".to_owned(), Value::from(parallel));
    told.insert("max_tool_calls".to_owned(), Value::Null);
    let output = match choice {
        None => Output::default(),
        Some(must) => Output { one_call: !parallel, must, ..offer(tools, TOOLS, variables, card)? },
    };
    Ok(Taken { output, told })
}

/// Reads the name of the function that has to be called.
fn named(raw: &RawValue, field: &str) -> Result<String, ApiError> {
    let mut choice = Fields::of_field(raw, field)?;
    choice.neutral("type", &[json!("function")])?;
    let name = choice.string("name")?.ok_or_else(|| ApiError::missing(&choice.name("name")))?;
    choice.finish()?;
    Ok(name)
}

/// Returns `tool_choice` as the response repeats it.
fn tell_choice(choice: Option<&Must>) -> Value {
    match choice {
        None => json!("none"),
        Some(Must::May) => json!("auto"),
        Some(Must::Call) => json!("required"),
        Some(Must::Name(name)) => json!({ "type": "function", "name": name }),
    }
}

fn tool(raw: &RawValue, name: &str) -> Result<Tool, ApiError> {
    let mut tool = Fields::of_field(raw, name)?;
    let kind = tool.string("type")?.ok_or_else(|| ApiError::missing(&tool.name("type")))?;
    if kind != "function" {
        let message = format!("'{name}' is a tool of type '{kind}'; this service takes functions.");
        return Err(ApiError::unsupported(&tool.name("type"), message));
    }
    let read = Tool {
        name: tool.string("name")?.ok_or_else(|| ApiError::missing(&tool.name("name")))?,
        description: tool.string("description")?,
        parameters: schema(&mut tool, "parameters")?,
        strict: tool.flag("strict")?.unwrap_or(false),
    };
    tool.neutral("defer_loading", &[json!(false)])?;
    tool.finish()?;
    Ok(read)
}

/// Returns a tool as the response repeats it.
fn tell(tool: &Tool) -> Value {
    let Tool { name, description, parameters, strict } = tool;
    json!({
        "type": "function", "name": name, "description": description, "parameters": parameters, "strict": strict,
    })
}
