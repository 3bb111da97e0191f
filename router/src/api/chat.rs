//! The body of `POST /v1/chat/completions`.

use super::fields::{Fields, typed};
use super::limits::Limits;
use super::options::{self, Options};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use engine::text::template::RESERVED;
use engine::text::{PromptEnd, PromptError, TemplateError, encode_chat};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Most alternatives per token in a chat's log probabilities.
const TOP_LOGPROBS_MAX: i64 = 20;

/// Most bytes of `chat_template_kwargs`.
const VARIABLES_BYTES_MAX: usize = 16 << 10;

/// The roles that a message can have here, as a template knows them. A developer is a system's later name.
const ROLES: [(&str, &str); 4] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")];

/// Reads the prompt and the options from the fields of a chat.
pub(super) fn parse(
    mut fields: Fields<'_>,
    card: &ModelCard,
    limits: &Limits,
) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
    options::model(&mut fields, card)?;
    let messages = messages(fields.required("messages")?)?;
    let end = prompt_end(&mut fields, &messages)?;
    let variables = variables(&mut fields)?;
    let max_tokens = max_tokens(&mut fields)?;
    let logprobs = logprobs(&mut fields)?;
    let options = Options::take(&mut fields, card, limits, max_tokens, logprobs)?;
    refuse_unsupported(&mut fields)?;
    fields.finish()?;
    let prompt = render(&messages, end, &variables, card)?;
    Ok((vec![prompt], Options { goes_on: end == PromptEnd::OpenMessage, ..options }))
}

/// Returns how the prompt ends: with the beginning of an answer, unless the client says otherwise.
fn prompt_end(fields: &mut Fields<'_>, messages: &[Value]) -> Result<PromptEnd, ApiError> {
    const OPEN: &str = "continue_final_message";
    let open = fields.flag(OPEN)?.unwrap_or(false);
    let answer = fields.flag("add_generation_prompt")?;
    match (open, answer) {
        (false, Some(false)) => Ok(PromptEnd::Message),
        (false, _) => Ok(PromptEnd::Answer),
        (true, Some(true)) => {
            Err(ApiError::field(OPEN, format!("'{OPEN}' and 'add_generation_prompt' cannot both be true.")))
        }
        (true, _) if messages.last().is_some_and(|last| last["role"] == "assistant") => Ok(PromptEnd::OpenMessage),
        (true, _) => Err(ApiError::field(OPEN, format!("'{OPEN}' needs a last message of the role 'assistant'."))),
    }
}

/// Reads more variables for the template.
fn variables(fields: &mut Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    const FIELD: &str = "chat_template_kwargs";
    let Some(raw) = fields.raw(FIELD) else { return Ok(Map::new()) };
    let bytes = raw.get().len();
    if bytes > VARIABLES_BYTES_MAX {
        let message = format!("'{FIELD}' has {bytes} bytes; {VARIABLES_BYTES_MAX} are allowed.");
        return Err(ApiError::field(FIELD, message));
    }
    let variables: Map<String, Value> = typed(raw, FIELD, "an object")?;
    match variables.keys().find(|name| RESERVED.contains(&name.as_str())) {
        None => Ok(variables),
        Some(name) => {
            let field = format!("{FIELD}.{name}");
            let message = format!("'{field}' cannot be set: the service gives the template its '{name}' itself.");
            Err(ApiError::field(&field, message))
        }
    }
}

/// Refuses tools, pictures, sound, reasoning, and forms of answer other than text.
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
    for field in ["audio", "prediction", "reasoning_effort", "web_search_options"] {
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

/// Returns the messages as a template takes them: `{"role", "content"}`, content as a string, and `name` where it is
/// given.
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
    for field in ["function_call", "tool_call_id", "audio", "refusal"] {
        fields.neutral(field, &[])?;
    }
    let content = options::text(fields.required("content")?, &fields.name("content"))?;
    let name = fields.string("name")?;
    fields.finish()?;
    let mut message = json!({ "role": role, "content": content });
    if let Some(name) = name {
        message["name"] = Value::from(name);
    }
    Ok(message)
}

fn render(
    messages: &[Value],
    end: PromptEnd,
    variables: &Map<String, Value>,
    card: &ModelCard,
) -> Result<Vec<Token>, ApiError> {
    const FIELD: &str = "messages";
    let Some(template) = &card.template else {
        let message = format!("The model '{}' has no chat template; use /v1/completions.", card.name);
        return Err(ApiError::unsupported(FIELD, message));
    };
    let tokens = encode_chat(template, &card.tokenizer, (messages, variables), end, card.specials);
    let tokens = tokens.map_err(|error| match error {
        PromptError::Template(TemplateError::Raised(why)) => {
            ApiError::field(FIELD, format!("The model's chat template refuses these messages: {why}"))
        }
        PromptError::Template(error @ TemplateError::Render(_)) => ApiError::field(FIELD, error.to_string()),
        PromptError::Template(error @ TemplateError::NoOpenEnd) => {
            ApiError::field("continue_final_message", error.to_string())
        }
        PromptError::Template(TemplateError::Invalid(why)) => {
            ApiError::internal(format!("The model's chat template failed: {why}"))
        }
        PromptError::Tokenizer(error) => ApiError::internal(format!("The tokenizer failed: {error}")),
        error @ PromptError::NoMark => ApiError::field(FIELD, error.to_string()),
    })?;
    // A tokenizer may know tokens that its model does not, such as those of pictures.
    options::in_vocabulary(&tokens, FIELD, card)?;
    Ok(tokens)
}
