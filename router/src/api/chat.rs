//! The body of `POST /v1/chat/completions`.

use super::ask::Limits;
use super::fields::{Fields, typed};
use super::options::{self, Options};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use engine::text::TemplateError;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Most alternatives per token in a chat's log probabilities.
const TOP_LOGPROBS_MAX: i64 = 20;

/// The roles that a message can have here, as a template knows them. A developer is a system's later name.
const ROLES: [(&str, &str); 4] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")];

/// Prompt and options in the fields of a chat.
pub(super) fn parse(
    mut fields: Fields<'_>,
    card: &ModelCard,
    limits: &Limits,
) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
    options::model(&mut fields, card)?;
    let messages = messages(fields.required("messages")?)?;
    let max_tokens = max_tokens(&mut fields)?;
    let logprobs = logprobs(&mut fields)?;
    let options = Options::take(&mut fields, card, limits, max_tokens, logprobs)?;
    refuse_unsupported(&mut fields)?;
    fields.finish()?;
    Ok((vec![render(&messages, card)?], options))
}

/// Tools, pictures, sound, reasoning and forms of answer besides text.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    for list in ["tools", "functions"] {
        fields.neutral(list, &[json!([])])?;
    }
    fields.neutral("tool_choice", &[json!("none")])?;
    fields.neutral("function_call", &[json!("none")])?;
    // Whether tools may be called at once says nothing where there are none.
    fields.neutral("parallel_tool_calls", &[json!(true), json!(false)])?;
    fields.neutral("response_format", &[options::text_format()])?;
    fields.neutral("modalities", &[json!(["text"])])?;
    for field in ["audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"] {
        fields.neutral(field, &[])?;
    }
    Ok(())
}

fn max_tokens(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let old = options::at_least(fields, "max_tokens", 1)?;
    let new = options::at_least(fields, "max_completion_tokens", 1)?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => {
            let message = format!("'max_tokens' ({old}) and 'max_completion_tokens' ({new}) contradict each other.");
            Err(ApiError::field("max_tokens", message))
        }
        _ => Ok(new.or(old)),
    }
}

fn logprobs(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS_MAX)?;
    if !wanted && top.is_some_and(|top| top > 0) {
        return Err(ApiError::field("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true."));
    }
    Ok(wanted.then_some(top.unwrap_or(0) as u32))
}

/// The messages as a template takes them: `{"role", "content"}`, content as a string.
fn messages(raw: &RawValue) -> Result<Vec<Value>, ApiError> {
    const FIELD: &str = "messages";
    if !raw.get().starts_with('[') {
        return Err(typed::<Vec<Value>>(raw, FIELD, "an array of messages").expect_err("it is no array"));
    }
    let raws: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|error| ApiError::body(error.to_string()))?;
    if raws.is_empty() {
        return Err(ApiError::field(FIELD, "'messages' is empty; there must be at least one message."));
    }
    raws.iter().enumerate().map(|(at, raw)| message(raw, &format!("{FIELD}[{at}]"))).collect()
}

fn message(raw: &RawValue, name: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::of_field(raw, name)?;
    let role = fields.string("role")?.ok_or_else(|| ApiError::missing(&fields.name("role")))?;
    let Some((_, role)) = ROLES.iter().find(|(known, _)| *known == role) else {
        let field = fields.name("role");
        let known = ROLES.map(|(known, _)| known).join(", ");
        let message = format!("'{field}' is '{role}'; this service takes {known}.");
        return Err(match role.as_str() {
            "tool" | "function" => ApiError::unsupported(&field, message),
            _ => ApiError::field(&field, message),
        });
    };
    for list in ["tool_calls", "annotations"] {
        fields.neutral(list, &[json!([])])?;
    }
    for field in ["function_call", "tool_call_id", "audio", "refusal", "name"] {
        fields.neutral(field, &[])?;
    }
    let content = options::text(fields.required("content")?, &fields.name("content"))?;
    fields.finish()?;
    Ok(json!({ "role": role, "content": content }))
}

fn render(messages: &[Value], card: &ModelCard) -> Result<Vec<Token>, ApiError> {
    const FIELD: &str = "messages";
    let Some(template) = &card.template else {
        let message = format!("The model '{}' has no chat template; use /v1/completions.", card.name);
        return Err(ApiError::unsupported(FIELD, message));
    };
    let text = template.render(messages, true, &Map::new()).map_err(|error| match error {
        TemplateError::Raised(why) => {
            ApiError::field(FIELD, format!("The model's chat template refuses these messages: {why}"))
        }
        error @ TemplateError::Render(_) => ApiError::field(FIELD, error.to_string()),
        TemplateError::Invalid(why) => ApiError::internal(format!("The model's chat template failed: {why}")),
    })?;
    card.tokenizer.encode(&text, false).map_err(|error| ApiError::internal(format!("The tokenizer failed: {error}")))
}
