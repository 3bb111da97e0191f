//! `POST /v1/chat/completions`.

use super::chat_writer::ChatWriter;
use super::messages::{MESSAGES, messages};
use super::{options, tools};
use crate::answer::Writer;
use crate::api::{Conversation, Fields, Limits, Options, Output, ParsedRequest, at_least, model, typed};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use domain::{RequestId, Token};
use engine::text::PromptEnd;
use engine::text::template::RESERVED;
use serde_json::{Map, Value, json};

/// Most alternatives per token in a chat's log probabilities.
const TOP_LOGPROBS_MAX: i64 = 20;

/// Most bytes of `chat_template_kwargs`.
const VARIABLES_BYTES_MAX: usize = 16 << 10;

/// Chats.
#[derive(Debug)]
pub(crate) struct Chat;

impl Dialect for Chat {
    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn operation(&self) -> &'static str {
        "chat"
    }

    fn prompt_field(&self) -> &'static str {
        MESSAGES
    }

    fn answer_id(&self, id: RequestId) -> String {
        format!("chatcmpl-{:016x}", id.0)
    }

    fn parse(
        &self,
        mut fields: Fields<'_>,
        card: &ModelCard,
        limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        model(&mut fields, card)?;
        let (conversation, output) = conversation(&mut fields, card)?;
        let goes_on = conversation.end == PromptEnd::OpenMessage;
        let max_tokens = max_tokens(&mut fields)?;
        let logprobs = logprobs(&mut fields)?;
        let mut options = options::take(&mut fields, card, limits, max_tokens, logprobs)?;
        // One sequence is the best of one: where it asks for no more than `n`, `best_of` changes nothing.
        fields.neutral("best_of", &[json!(options.choices)])?;
        // A template writes the special tokens itself.
        fields.neutral("add_special_tokens", &[json!(false)])?;
        refuse_unsupported(&mut fields)?;
        fields.finish()?;
        output.shows_in(&mut options.special_tokens, card);
        let tokens = conversation.tokens(MESSAGES, card)?;
        let mut options = Options { goes_on, output: Some(output), ..options };
        options.set_grammar(tools::TOOLS, &tokens, card)?;
        Ok((vec![tokens], options))
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        Box::new(ChatWriter::new(head, asked, card))
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        super::error(error)
    }
}

/// Takes the fields that make the prompt. Returns also what tells reasoning and calls from the text of its answer.
pub(crate) fn conversation(fields: &mut Fields<'_>, card: &ModelCard) -> Result<(Conversation, Output), ApiError> {
    let messages = messages(fields.required(MESSAGES)?)?;
    let end = prompt_end(fields, &messages)?;
    let mut variables = variables(fields)?;
    let output = tools::take(fields, &mut variables, card)?;
    tools::effort(fields, &mut variables, card)?;
    Ok((Conversation { messages, end, variables }, output))
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

/// Refuses pictures, sound, and the form of calls before tools.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.neutral("functions", &[json!([])])?;
    fields.neutral("function_call", &[json!("none")])?;
    fields.neutral("modalities", &[json!(["text"])])?;
    for field in ["audio", "prediction", "web_search_options"] {
        fields.neutral(field, &[])?;
    }
    Ok(())
}

fn max_tokens(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let old = at_least(fields, "max_tokens", 1)?;
    let new = at_least(fields, "max_completion_tokens", 1)?;
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
