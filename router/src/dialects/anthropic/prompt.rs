//! The fields that make the prompt of messages: `system`, `messages`, `tools`, and what hangs on them.

use super::blocks::{cache_control, message, text};
use super::tools;
use crate::api::{Conversation, Fields, Output, Structure, model, only, switch_thinking, typed};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use engine::text::PromptEnd;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The field that holds the prompt.
pub(super) const MESSAGES: &str = "messages";

/// How much an answer can be worth.
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];
/// What templates call it.
const REASONING_EFFORT: &str = "reasoning_effort";

/// A prompt, and what its answer is.
pub(super) struct Prompt {
    pub(super) tokens: Vec<Token>,
    /// The answer goes on with the text of the last message.
    pub(super) goes_on: bool,
    /// What tells reasoning and calls from text.
    pub(super) output: Output,
    /// What the text of the answer has to be.
    pub(super) structure: Option<Structure>,
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
        message(raw, &format!("{MESSAGES}[{at}]"), &mut messages)?;
    }
    let mut variables = Map::new();
    let output = tools::take(fields, &mut variables, card)?;
    thinking(fields, &mut variables, card)?;
    let structure = only([config(fields, &mut variables, card)?, output_format(fields)?])?;
    refuse_unsupported(fields)?;
    // A last message of the assistant is the beginning of the answer.
    let goes_on = messages.last().is_some_and(|last| last["role"] == "assistant");
    let end = if goes_on { PromptEnd::OpenMessage } else { PromptEnd::Answer };
    let tokens = Conversation { messages, end, variables }.tokens(MESSAGES, card)?;
    Ok(Prompt { tokens, goes_on, output, structure })
}

/// Returns how many tokens the prompt of a body has, as `POST /v1/messages/count_tokens` answers it. Takes time with
/// the length of the body. Errors: what the client has to fix.
pub(crate) fn count_tokens(body: &[u8], card: &ModelCard) -> Result<Value, ApiError> {
    let mut fields = Fields::of_body(body)?;
    let prompt = take(&mut fields, card)?;
    fields.finish()?;
    Ok(json!({ "input_tokens": prompt.tokens.len() }))
}

/// Takes `thinking`: whether the model is to think, where its template asks. How much it thinks is not bounded.
fn thinking(fields: &mut Fields<'_>, variables: &mut Map<String, Value>, card: &ModelCard) -> Result<(), ApiError> {
    const THINKING: &str = "thinking";
    /// Fewest tokens that a budget may have.
    const BUDGET_MIN: i64 = 1024;
    let Some(raw) = fields.raw(THINKING) else { return Ok(()) };
    let mut thinking = Fields::of_field(raw, THINKING)?;
    let kind = thinking.string("type")?.ok_or_else(|| ApiError::missing("thinking.type"))?;
    let thinks = match kind.as_str() {
        "enabled" => {
            let budget = thinking.integer("budget_tokens", BUDGET_MIN..=i64::from(u32::MAX))?;
            budget.ok_or_else(|| ApiError::missing("thinking.budget_tokens")).map(|_| true)?
        }
        "adaptive" => true,
        "disabled" => false,
        _ => {
            let message = format!("'thinking.type' is '{kind}'; it must be enabled, adaptive or disabled.");
            return Err(ApiError::field("thinking.type", message));
        }
    };
    thinking.neutral("display", &[json!("summarized")])?;
    thinking.finish()?;
    switch_thinking(THINKING, thinks, variables, card)
}

/// Takes `output_config`: how much effort the answer is worth, and what its text has to be. A model whose template does
/// not ask for effort gives what it gives.
fn config(
    fields: &mut Fields<'_>,
    variables: &mut Map<String, Value>,
    card: &ModelCard,
) -> Result<Option<Structure>, ApiError> {
    const CONFIG: &str = "output_config";
    const FORMAT: &str = "format";
    let Some(raw) = fields.raw(CONFIG) else { return Ok(None) };
    let mut config = Fields::of_field(raw, CONFIG)?;
    let effort = config.string("effort")?;
    let name = config.name(FORMAT);
    let structure = config.raw(FORMAT).map(|raw| format(raw, &name)).transpose()?;
    config.finish()?;
    let Some(effort) = effort else { return Ok(structure) };
    if !EFFORTS.contains(&effort.as_str()) {
        let message = format!("'{CONFIG}.effort' is '{effort}'; it must be one of {}.", EFFORTS.join(", "));
        return Err(ApiError::field("output_config.effort", message));
    }
    if card.template.as_ref().is_some_and(|template| template.has(REASONING_EFFORT)) {
        variables.entry(REASONING_EFFORT).or_insert(Value::from(effort));
    }
    Ok(structure)
}

/// Takes `output_format`, which older clients send instead of `output_config.format`.
fn output_format(fields: &mut Fields<'_>) -> Result<Option<Structure>, ApiError> {
    const FORMAT: &str = "output_format";
    fields.raw(FORMAT).map(|raw| format(raw, FORMAT)).transpose()
}

/// Reads the schema of an answer, which `field` has.
fn format(raw: &RawValue, field: &str) -> Result<Structure, ApiError> {
    let mut format = Fields::of_field(raw, field)?;
    let kind = format.string("type")?.ok_or_else(|| ApiError::missing(&format.name("type")))?;
    if kind != "json_schema" {
        let message = format!("'{field}.type' is '{kind}'; it must be json_schema.");
        return Err(ApiError::field(&format.name("type"), message));
    }
    let structure = Structure::json(&mut format, "schema")?.ok_or_else(|| ApiError::missing(&format.name("schema")))?;
    format.finish()?;
    Ok(structure)
}

/// Refuses what a text-only model on its own cannot do.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.neutral("mcp_servers", &[json!([])])?;
    fields.neutral("context_management", &[json!({ "edits": [] })])?;
    fields.neutral("speed", &[json!("standard")])?;
    for field in ["container", "thread"] {
        fields.neutral(field, &[])?;
    }
    cache_control(fields)
}
