//! `POST /v1/chat/completions`.

use super::form::{Object, Usage, finish_reason};
use super::logprobs::{ChatLogprobs, Logged};
use super::options;
use crate::answer::{Delta, Finish, LoggedToken, Taken, Whole};
use crate::api::{Conversation, Fields, Limits, Options, ParsedRequest, at_least, model, text, typed};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head, Writer};
use crate::error::ApiError;
use bytes::{BufMut, BytesMut};
use domain::{RequestId, Token};
use engine::text::template::RESERVED;
use engine::text::{PromptEnd, Tokenizer};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Most alternatives per token in a chat's log probabilities.
const TOP_LOGPROBS_MAX: i64 = 20;

/// Most bytes of `chat_template_kwargs`.
const VARIABLES_BYTES_MAX: usize = 16 << 10;

/// The roles that a message can have here, as a template knows them. A developer is a system's later name.
const ROLES: [(&str, &str); 4] =
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant")];

/// The field that holds the prompt.
pub(crate) const MESSAGES: &str = "messages";

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
        let conversation = conversation(&mut fields)?;
        let goes_on = conversation.end == PromptEnd::OpenMessage;
        let max_tokens = max_tokens(&mut fields)?;
        let logprobs = logprobs(&mut fields)?;
        let options = options::take(&mut fields, card, limits, max_tokens, logprobs)?;
        refuse_unsupported(&mut fields)?;
        fields.finish()?;
        Ok((vec![conversation.tokens(MESSAGES, card)?], Options { goes_on, ..options }))
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        let options = &asked.options;
        Box::new(ChatWriter {
            head,
            tokenizer: card.tokenizer.clone(),
            logprobs: options.params.logprobs.is_some(),
            usage: options.include_usage,
            begun: vec![false; asked.sequences()],
        })
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        super::error(error)
    }
}

/// Takes the fields that make the prompt.
pub(crate) fn conversation(fields: &mut Fields<'_>) -> Result<Conversation, ApiError> {
    let messages = messages(fields.required(MESSAGES)?)?;
    let end = prompt_end(fields, &messages)?;
    Ok(Conversation { messages, end, variables: variables(fields)? })
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

/// Returns the messages as a template takes them: `{"role", "content"}`, content as a string, and `name` where it is
/// given.
fn messages(raw: &RawValue) -> Result<Vec<Value>, ApiError> {
    let raws: Vec<&RawValue> = typed(raw, MESSAGES, "an array of messages")?;
    if raws.is_empty() {
        return Err(ApiError::field(MESSAGES, "'messages' is empty; there must be at least one message."));
    }
    raws.iter().enumerate().map(|(at, raw)| message(raw, &format!("{MESSAGES}[{at}]"))).collect()
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
    let content = text(fields.required("content")?, &fields.name("content"))?;
    let name = fields.string("name")?;
    fields.finish()?;
    let mut message = json!({ "role": role, "content": content });
    if let Some(name) = name {
        message["name"] = Value::from(name);
    }
    Ok(message)
}

/// Writes the answer to a chat.
struct ChatWriter {
    head: Head,
    tokenizer: Tokenizer,
    /// The client asked for log probabilities.
    logprobs: bool,
    /// The client asked for the usage.
    usage: bool,
    /// Sequences whose first chunk, which names the role, is written.
    begun: Vec<bool>,
}

/// A sequence of an answer.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    message: Message<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    refusal: Option<&'static str>,
}

/// A chunk of a sequence of an answer.
#[derive(Serialize)]
struct ChoiceChunk<'a> {
    index: usize,
    delta: MessageDelta<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct MessageDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl ChatWriter {
    fn logged<'a>(&'a self, tokens: &'a [LoggedToken]) -> Option<ChatLogprobs<'a>> {
        self.logprobs.then(|| Logged { tokenizer: &self.tokenizer, tokens }.into())
    }

    fn chunk<C: Serialize>(&self, choices: C, usage: Option<Usage>, out: &mut BytesMut) {
        let usage = self.usage.then_some(usage);
        super::event(out, &Object::new("chat.completion.chunk", &self.head, choices, usage));
    }

    /// Begins a sequence with its role.
    fn begin_sequence(&mut self, index: usize, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.begun[index], true) {
            let delta = MessageDelta { role: Some("assistant"), content: Some("") };
            self.chunk([ChoiceChunk { index, delta, logprobs: None, finish_reason: None }], None, out);
        }
    }
}

impl Writer for ChatWriter {
    fn delta(&mut self, index: usize, delta: &Delta, out: &mut BytesMut) {
        self.begin_sequence(index, out);
        let logprobs = self.logged(&delta.logprobs);
        let delta = MessageDelta { role: None, content: Some(&delta.text) };
        self.chunk([ChoiceChunk { index, delta, logprobs, finish_reason: None }], None, out);
    }

    fn finish(&mut self, index: usize, finish: Finish, out: &mut BytesMut) {
        self.begin_sequence(index, out);
        let (delta, finish_reason) = (MessageDelta::default(), Some(finish_reason(finish)));
        self.chunk([ChoiceChunk { index, delta, logprobs: None, finish_reason }], None, out);
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        if self.usage {
            let none: [(); 0] = [];
            self.chunk(none, Some(Usage::of(taken)), out);
        }
        out.put_slice(super::DONE);
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        super::error_event(out, error);
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let choices: Vec<_> = (sequences.iter().enumerate())
            .map(|(index, Whole { text, logprobs, finish })| Choice {
                index,
                message: Message { role: "assistant", content: text, refusal: None },
                logprobs: self.logged(logprobs),
                finish_reason: finish_reason(*finish),
            })
            .collect();
        super::whole(&Object::new("chat.completion", &self.head, choices, Some(Some(Usage::of(taken)))))
    }
}
