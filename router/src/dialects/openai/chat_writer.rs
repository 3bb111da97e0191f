//! The answer to a chat.

use super::form::{Object, Usage, finish_reason};
use super::logprobs::{ChatLogprobs, Logged};
use crate::answer::{Delta, Finish, LoggedToken, Taken, Whole, Writer};
use crate::api::{ParsedRequest, call_id};
use crate::config::ModelCard;
use crate::dialects::Head;
use crate::error::ApiError;
use crate::output::Part;
use bytes::{BufMut, BytesMut};
use domain::Token;
use engine::text::Tokenizer;
use serde::Serialize;
use std::sync::Arc;

/// How ids of calls begin.
const CALL: &str = "call_";

/// Writes the answer to a chat.
pub(super) struct ChatWriter {
    head: Head,
    tokenizer: Tokenizer,
    /// The client asked for log probabilities.
    logprobs: bool,
    /// The client asked for the usage.
    usage: bool,
    /// Ids of calls have nine letters and digits.
    short_ids: bool,
    /// The tokens of the prompt, where the client asked for tokens.
    prompt: Option<Arc<[Token]>>,
    /// What was written of each sequence.
    sequences: Vec<Written>,
}

/// What of a sequence is written.
#[derive(Clone, Copy, Default)]
struct Written {
    /// Its first chunk, which names the role.
    is_begun: bool,
    /// Calls that have begun.
    calls: usize,
}

/// A sequence of an answer.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    message: Message,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [Token]>,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    /// `None` where there are calls and no text.
    content: Option<String>,
    refusal: Option<&'static str>,
    annotations: [(); 0],
    #[serde(flatten)]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

/// Reasoning, by both of the names that clients know.
#[derive(Serialize)]
struct Reasoning {
    reasoning: String,
    reasoning_content: String,
}

/// A call, or a chunk of one.
#[derive(Serialize)]
struct Call {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

/// A chunk of a sequence of an answer.
#[derive(Serialize)]
struct ChoiceChunk<'a> {
    index: usize,
    delta: MessageDelta,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [Token]>,
}

impl ChoiceChunk<'_> {
    fn new(index: usize, delta: MessageDelta) -> Self {
        Self { index, delta, logprobs: None, finish_reason: None, token_ids: None }
    }
}

#[derive(Default, Serialize)]
struct MessageDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(flatten)]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[Call; 1]>,
}

impl Reasoning {
    fn new(text: String) -> Self {
        Self { reasoning: text.clone(), reasoning_content: text }
    }
}

impl ChatWriter {
    /// Begins the answer to `asked`.
    pub(super) fn new(head: Head, asked: &ParsedRequest, card: &ModelCard) -> Self {
        Self {
            head,
            tokenizer: card.tokenizer.clone(),
            logprobs: asked.options.params.logprobs.is_some(),
            usage: asked.options.include_usage,
            short_ids: card.forms.has_short_ids(),
            prompt: asked.options.tells_tokens.then(|| asked.prompts[0].tokens.clone()),
            sequences: vec![Written::default(); asked.sequences()],
        }
    }

    fn logged<'a>(&'a self, tokens: &'a [LoggedToken]) -> Option<ChatLogprobs<'a>> {
        self.logprobs.then(|| Logged { tokenizer: &self.tokenizer, tokens }.into())
    }

    fn chunk<C: Serialize>(&self, choices: C, usage: Option<Usage>, out: &mut BytesMut) {
        let usage = self.usage.then_some(usage);
        super::event(out, &Object::new("chat.completion.chunk", &self.head, choices, usage));
    }

    /// Begins a sequence with its role.
    fn begin_sequence(&mut self, index: usize, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.sequences[index].is_begun, true) {
            let delta =
                MessageDelta { role: Some("assistant"), content: Some(String::new()), ..MessageDelta::default() };
            let chunk = [ChoiceChunk::new(index, delta)];
            let usage = self.usage.then_some(None);
            let object = Object::new("chat.completion.chunk", &self.head, chunk, usage);
            super::event(out, &object.with_prompt(self.prompt.as_deref()));
        }
    }

    fn call_id(&self, sequence: usize, call: usize) -> String {
        call_id(CALL, self.head.request, sequence, call, self.short_ids)
    }

    /// Returns what a part says; `None`: the end of a call has no chunk.
    fn part(&mut self, index: usize, part: &Part) -> Option<MessageDelta> {
        let none = MessageDelta::default();
        Some(match part {
            Part::Text(text) => MessageDelta { content: Some(text.clone()), ..none },
            Part::Reasoning(text) => MessageDelta { reasoning: Some(Reasoning::new(text.clone())), ..none },
            Part::ToolBegin { name } => {
                let call = self.sequences[index].calls;
                self.sequences[index].calls += 1;
                let function = Function { name: Some(name.clone()), arguments: String::new() };
                let (id, kind) = (Some(self.call_id(index, call)), Some("function"));
                MessageDelta { tool_calls: Some([Call { index: Some(call), id, kind, function }]), ..none }
            }
            Part::ToolArguments(more) => {
                let call = self.sequences[index].calls - 1;
                let function = Function { name: None, arguments: more.clone() };
                MessageDelta { tool_calls: Some([Call { index: Some(call), id: None, kind: None, function }]), ..none }
            }
            Part::ToolEnd => return None,
        })
    }

    /// Returns `finish_reason`: a model that ends its answer after a call waits for what the tool says.
    fn finish_reason(finish: Finish, calls: usize) -> &'static str {
        match finish {
            Finish::Stop if calls > 0 => "tool_calls",
            Finish::Stop | Finish::StopString(_) | Finish::Length => finish_reason(finish),
        }
    }

    fn message(&self, index: usize, whole: &Whole) -> Message {
        let calls = whole.calls().into_iter().enumerate().map(|(call, (name, arguments))| Call {
            index: None,
            id: Some(self.call_id(index, call)),
            kind: Some("function"),
            function: Function { name: Some(name.to_owned()), arguments },
        });
        let tool_calls: Vec<Call> = calls.collect();
        let (text, reasoning) = (whole.text(), whole.reasoning());
        Message {
            role: "assistant",
            content: (!text.is_empty() || tool_calls.is_empty()).then_some(text),
            refusal: None,
            annotations: [],
            reasoning: (!reasoning.is_empty()).then(|| Reasoning::new(reasoning)),
            tool_calls,
        }
    }
}

impl Writer for ChatWriter {
    fn delta(&mut self, index: usize, delta: &Delta, out: &mut BytesMut) {
        self.begin_sequence(index, out);
        let mut said: Vec<MessageDelta> = delta.parts.iter().filter_map(|part| self.part(index, part)).collect();
        if said.is_empty() {
            if delta.logprobs.is_empty() && delta.tokens.is_empty() {
                return;
            }
            said.push(MessageDelta { content: Some(String::new()), ..MessageDelta::default() });
        }
        for (at, delta_of_part) in said.into_iter().enumerate() {
            // The tokens go with the first of the parts that they made.
            let (logged, tokens) = if at == 0 { (&delta.logprobs[..], &delta.tokens[..]) } else { (&[][..], &[][..]) };
            let logprobs = self.logged(logged);
            let token_ids = self.prompt.is_some().then_some(tokens);
            self.chunk([ChoiceChunk { logprobs, token_ids, ..ChoiceChunk::new(index, delta_of_part) }], None, out);
        }
    }

    fn finish(&mut self, index: usize, finish: Finish, out: &mut BytesMut) {
        self.begin_sequence(index, out);
        let finish_reason = Some(Self::finish_reason(finish, self.sequences[index].calls));
        let chunk = ChoiceChunk { finish_reason, ..ChoiceChunk::new(index, MessageDelta::default()) };
        self.chunk([chunk], None, out);
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
            .map(|(index, whole)| Choice {
                index,
                message: self.message(index, whole),
                logprobs: self.logged(&whole.logprobs),
                finish_reason: Self::finish_reason(whole.finish, whole.calls().len()),
                token_ids: self.prompt.is_some().then_some(&whole.tokens[..]),
            })
            .collect();
        let object = Object::new("chat.completion", &self.head, choices, Some(Some(Usage::of(taken))));
        super::whole(&object.with_prompt(self.prompt.as_deref()))
    }
}
