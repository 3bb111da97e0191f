//! The messages of this API, as templates of Hugging Face take them.

use crate::api::{Fields, earlier_call, think, typed};
use crate::error::ApiError;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The field that holds the prompt.
pub(super) const MESSAGES: &str = "messages";

/// The roles that a message can have here.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// Calls of the earlier turns, whose clients need not give them ids.
#[derive(Default)]
struct Calls {
    /// How many there were.
    count: usize,
    /// Those that no tool has answered: name and id.
    open: VecDeque<(String, String)>,
}

impl Calls {
    /// Notes a call of the tool `name`. Returns its id: `given`, or one of nine letters and digits, which the templates
    /// of all models take.
    fn add(&mut self, name: &str, given: Option<String>) -> String {
        let id = given.unwrap_or_else(|| format!("call{:05}", self.count));
        self.count += 1;
        self.open.push_back((name.to_owned(), id.clone()));
        id
    }

    /// Returns the id of the call that a tool answers: of the first one that is open, and has its `name` if it says so.
    fn answered(&mut self, name: Option<&str>) -> Option<String> {
        let at = self.open.iter().position(|(called, _)| name.is_none_or(|name| name == called))?;
        self.open.remove(at).map(|(_, id)| id)
    }
}

/// Takes the messages as a template takes them: `{"role", "content"}`, content as a string, and what else is given.
pub(super) fn messages(fields: &mut Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let Some(raw) = fields.raw(MESSAGES) else { return Ok(Vec::new()) };
    let raws: Vec<&RawValue> = typed(raw, MESSAGES, "an array of messages")?;
    let mut calls = Calls::default();
    raws.iter().enumerate().map(|(at, raw)| message(raw, &format!("{MESSAGES}[{at}]"), &mut calls)).collect()
}

fn message(raw: &RawValue, name: &str, calls: &mut Calls) -> Result<Value, ApiError> {
    let mut fields = Fields::of_field(raw, name)?;
    let role = fields.string("role")?.ok_or_else(|| ApiError::missing(&fields.name("role")))?;
    if !ROLES.contains(&role.as_str()) {
        let field = fields.name("role");
        let message = format!("'{field}' is '{role}'; this service takes {}.", ROLES.join(", "));
        return Err(ApiError::field(&field, message));
    }
    let content = fields.string("content")?.unwrap_or_default();
    fields.neutral("images", &[json!([])])?;
    let mut message = json!({ "role": role, "content": content });
    match role.as_str() {
        "assistant" => {
            let said = earlier_calls(&mut fields, calls)?;
            if !said.is_empty() {
                message["tool_calls"] = Value::from(said);
            }
            if let Some(thought) = fields.string("thinking")?.filter(|thought| !thought.is_empty()) {
                think(&mut message, &thought);
            }
        }
        "tool" => answer(&mut fields, calls, &mut message)?,
        _ => {}
    }
    fields.neutral("tool_calls", &[json!([])])?;
    for field in ["thinking", "tool_name", "tool_call_id"] {
        fields.neutral(field, &[json!("")])?;
    }
    fields.finish()?;
    Ok(message)
}

/// Takes what says which call a tool answers.
fn answer(fields: &mut Fields<'_>, calls: &mut Calls, message: &mut Value) -> Result<(), ApiError> {
    let tool = fields.string("tool_name")?.filter(|tool| !tool.is_empty());
    let given = fields.string("tool_call_id")?.filter(|id| !id.is_empty());
    if let Some(id) = given.or_else(|| calls.answered(tool.as_deref())) {
        message["tool_call_id"] = Value::from(id);
    }
    if let Some(tool) = tool {
        message["name"] = Value::from(tool);
    }
    Ok(())
}

/// Takes the calls of an earlier turn.
fn earlier_calls(fields: &mut Fields<'_>, calls: &mut Calls) -> Result<Vec<Value>, ApiError> {
    const CALLS: &str = "tool_calls";
    let name = fields.name(CALLS);
    let Some(raw) = fields.raw(CALLS) else { return Ok(Vec::new()) };
    let raws: Vec<&RawValue> = typed(raw, &name, "an array of calls")?;
    raws.iter().enumerate().map(|(at, raw)| call(raw, &format!("{name}[{at}]"), calls)).collect()
}

fn call(raw: &RawValue, name: &str, calls: &mut Calls) -> Result<Value, ApiError> {
    let mut call = Fields::of_field(raw, name)?;
    let given = call.string("id")?.filter(|id| !id.is_empty());
    call.neutral("type", &[json!("function")])?;
    let mut function = Fields::of_field(call.required("function")?, &call.name("function"))?;
    let tool = function.string("name")?.ok_or_else(|| ApiError::missing(&function.name("name")))?;
    let name = function.name("arguments");
    let arguments = function.raw("arguments").map(|raw| typed::<Map<String, Value>>(raw, &name, "an object"));
    let arguments = arguments.transpose()?.unwrap_or_default();
    function.integer("index", 0..=i64::from(u32::MAX))?;
    function.finish()?;
    call.finish()?;
    let id = calls.add(&tool, given);
    Ok(earlier_call(&id, &tool, Value::Object(arguments)))
}
