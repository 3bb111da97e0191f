//! The fields that make the prompt of messages: `system`, `messages`, `tools`, and what hangs on them.

use super::blocks::{cache_control, message, text};
use super::tools;
use crate::api::{Conversation, Fields, Output, model, switch_thinking, typed};
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
    effort(fields, &mut variables, card)?;
    refuse_unsupported(fields)?;
    // A last message of the assistant is the beginning of the answer.
    let goes_on = messages.last().is_some_and(|last| last["role"] == "assistant");
    let end = if goes_on { PromptEnd::OpenMessage } else { PromptEnd::Answer };
    let tokens = Conversation { messages, end, variables }.tokens(MESSAGES, card)?;
    Ok(Prompt { tokens, goes_on, output })
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

/// Takes `output_config`: how much effort the answer is worth. A model whose template does not ask gives what it gives.
fn effort(fields: &mut Fields<'_>, variables: &mut Map<String, Value>, card: &ModelCard) -> Result<(), ApiError> {
    const CONFIG: &str = "output_config";
    let Some(raw) = fields.raw(CONFIG) else { return Ok(()) };
    let mut config = Fields::of_field(raw, CONFIG)?;
    let effort = config.string("effort")?;
    config.neutral("format", &[])?;
    config.finish()?;
    let Some(effort) = effort else { return Ok(()) };
    if !EFFORTS.contains(&effort.as_str()) {
        let message = format!("'{CONFIG}.effort' is '{effort}'; it must be one of {}.", EFFORTS.join(", "));
        return Err(ApiError::field("output_config.effort", message));
    }
    if card.template.as_ref().is_some_and(|template| template.has(REASONING_EFFORT)) {
        variables.entry(REASONING_EFFORT).or_insert(Value::from(effort));
    }
    Ok(())
}

/// Refuses what a text-only model on its own cannot do.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.neutral("mcp_servers", &[json!([])])?;
    fields.neutral("context_management", &[json!({ "edits": [] })])?;
    fields.neutral("speed", &[json!("standard")])?;
    for field in ["container", "output_format", "thread"] {
        fields.neutral(field, &[])?;
    }
    cache_control(fields)
}
