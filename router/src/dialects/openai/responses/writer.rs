//! The answer to a request: events, or the response that they build up.

use super::made::Made;
use super::response::{Status, item_id, response};
use crate::answer::{Delta, Finish, LoggedToken, Taken, Whole, Writer};
use crate::api::call_id;
use crate::clock::unix_seconds;
use crate::config::ModelCard;
use crate::dialects::Head;
use crate::dialects::openai::logprobs::{ChatLogprobs, Logged};
use crate::error::{self, ApiError};
use crate::output::Part;
use bytes::{BufMut, BytesMut};
use engine::text::Tokenizer;
use serde_json::{Value, json};
use std::sync::Arc;

/// How ids of calls begin.
const CALL: &str = "call_";

/// Writes an answer.
#[derive(Clone)]
pub(super) struct TurnWriter {
    head: Head,
    made: Arc<Made>,
    tokenizer: Tokenizer,
    /// Ids of calls have nine letters and digits.
    short_ids: bool,
    /// Events so far.
    events: u64,
    /// Items that are complete.
    output: Vec<Value>,
    /// The item that is being made.
    open: Option<Item>,
    /// Log probabilities of text that is not written yet.
    logprobs: Vec<Value>,
    /// Calls that have begun.
    calls: usize,
    /// Why it ended.
    finish: Option<Finish>,
}

/// An item that is being made.
#[derive(Clone)]
struct Item {
    id: String,
    kind: Kind,
    /// Its text, or its arguments.
    text: String,
    logprobs: Vec<Value>,
}

/// What an item is.
#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call { name: String, call_id: String },
}

impl Kind {
    /// Returns how ids of such items begin.
    fn prefix(&self) -> &'static str {
        match self {
            Self::Message => "msg",
            Self::Reasoning => "rs",
            Self::Call { .. } => "fc",
        }
    }

    /// Returns the type of its part.
    fn part(&self) -> Option<&'static str> {
        match self {
            Self::Message => Some("output_text"),
            Self::Reasoning => Some("reasoning_text"),
            Self::Call { .. } => None,
        }
    }
}

impl Item {
    /// Returns its part with this text.
    fn part(&self, text: &str, logprobs: &[Value]) -> Option<Value> {
        let mut part = json!({ "type": self.kind.part()?, "text": text });
        if self.kind == Kind::Message {
            part["annotations"] = json!([]);
            part["logprobs"] = json!(logprobs);
        }
        Some(part)
    }

    /// Returns it as the API tells it, with this content.
    fn tell(&self, status: Status<'_>, content: &[Value], arguments: &str) -> Value {
        let (id, status) = (&self.id, status.name());
        match &self.kind {
            Kind::Message => {
                json!({ "type": "message", "id": id, "status": status, "role": "assistant", "content": content })
            }
            Kind::Reasoning => {
                json!({ "type": "reasoning", "id": id, "status": status, "summary": [], "content": content })
            }
            Kind::Call { name, call_id } => json!({
                "type": "function_call", "id": id, "status": status, "call_id": call_id, "name": name,
                "arguments": arguments,
            }),
        }
    }
}

impl TurnWriter {
    /// Begins an answer.
    pub(super) fn new(head: Head, card: &ModelCard, made: Arc<Made>) -> Self {
        let (tokenizer, short_ids) = (card.tokenizer.clone(), card.forms.has_short_ids());
        let (output, logprobs) = (Vec::new(), Vec::new());
        let (events, calls) = (0, 0);
        Self { head, made, tokenizer, short_ids, events, output, open: None, logprobs, calls, finish: None }
    }

    /// Appends an event: `fields`, its type and its number.
    fn event(&mut self, kind: &str, mut fields: Value, out: &mut BytesMut) {
        fields["type"] = Value::from(kind);
        fields["sequence_number"] = Value::from(self.events);
        self.events += 1;
        out.put_slice(b"event: ");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\ndata: ");
        serde_json::to_writer(out.writer(), &fields).expect("the fields are JSON, and the buffer grows");
        out.put_slice(b"\n\n");
    }

    /// Appends an event of the item that is open, about its part where it has one.
    fn item_event(&mut self, kind: &str, mut fields: Value, out: &mut BytesMut) {
        let item = self.open.as_ref().expect("an item is open");
        fields["item_id"] = Value::from(item.id.as_str());
        fields["output_index"] = Value::from(self.output.len());
        if item.kind.part().is_some() {
            fields["content_index"] = Value::from(0);
        }
        self.event(kind, fields, out);
    }

    /// Begins an item of this kind, unless it is open. Another one that is open ends.
    fn open(&mut self, kind: Kind, out: &mut BytesMut) {
        if self.open.as_ref().is_some_and(|item| item.kind == kind) {
            return;
        }
        self.close(Status::Completed, out);
        let id = item_id(&self.head.id, kind.prefix(), &format!("{:02x}", self.output.len()));
        let item = Item { id, kind, text: String::new(), logprobs: Vec::new() };
        let told = item.tell(Status::InProgress, &[], "");
        let part = item.part("", &[]);
        let index = self.output.len();
        self.open = Some(item);
        self.event("response.output_item.added", json!({ "output_index": index, "item": told }), out);
        if let Some(part) = part {
            self.item_event("response.content_part.added", json!({ "part": part }), out);
        }
    }

    /// Ends the item that is open, if one is.
    fn close(&mut self, status: Status<'_>, out: &mut BytesMut) {
        let Some(item) = &mut self.open else { return };
        if item.kind == Kind::Message {
            item.logprobs.append(&mut self.logprobs);
        }
        let text = std::mem::take(&mut item.text);
        let part = item.part(&text, &item.logprobs);
        let told = item.tell(status, part.as_slice(), &text);
        match &item.kind {
            Kind::Message => {
                let fields = json!({ "text": text, "logprobs": item.logprobs });
                self.item_event("response.output_text.done", fields, out);
            }
            Kind::Reasoning => self.item_event("response.reasoning_text.done", json!({ "text": text }), out),
            Kind::Call { name, .. } => {
                let fields = json!({ "name": name, "arguments": text });
                self.item_event("response.function_call_arguments.done", fields, out);
            }
        }
        if let Some(part) = part {
            self.item_event("response.content_part.done", json!({ "part": part }), out);
        }
        let fields = json!({ "output_index": self.output.len(), "item": told });
        self.event("response.output_item.done", fields, out);
        self.output.push(told);
        self.open = None;
    }

    /// Appends more of an item of this kind.
    fn extend(&mut self, event: &str, more: &str, out: &mut BytesMut) {
        let item = self.open.as_mut().expect("an item is open");
        item.text.push_str(more);
        let mut fields = json!({ "delta": more });
        if item.kind == Kind::Message {
            let logprobs = std::mem::take(&mut self.logprobs);
            fields["logprobs"] = json!(logprobs);
            item.logprobs.extend(logprobs);
        }
        self.item_event(event, fields, out);
    }

    fn part(&mut self, part: &Part, out: &mut BytesMut) {
        match part {
            Part::Text(more) => {
                self.open(Kind::Message, out);
                self.extend("response.output_text.delta", more, out);
            }
            Part::Reasoning(more) => {
                self.open(Kind::Reasoning, out);
                self.extend("response.reasoning_text.delta", more, out);
            }
            Part::ToolBegin { name } => {
                let call_id = call_id(CALL, self.head.request, 0, self.calls, self.short_ids);
                self.calls += 1;
                self.open(Kind::Call { name: name.clone(), call_id }, out);
            }
            Part::ToolArguments(more) => self.extend("response.function_call_arguments.delta", more, out),
            Part::ToolEnd => self.close(Status::Completed, out),
        }
    }

    /// Takes log probabilities of text that follows.
    fn log(&mut self, tokens: &[LoggedToken]) {
        if tokens.is_empty() {
            return;
        }
        let logged = ChatLogprobs::from(Logged { tokenizer: &self.tokenizer, tokens });
        if let Value::Array(logprobs) = json!(logged)["content"].take() {
            self.logprobs.extend(logprobs);
        }
    }

    /// Returns how the answer ended.
    fn status(&self) -> Status<'static> {
        match self.finish {
            Some(Finish::Length) => Status::Incomplete,
            Some(Finish::Stop | Finish::StopString(_)) | None => Status::Completed,
        }
    }

    /// Returns the response, which has not ended.
    fn begun(&self) -> Value {
        response(&self.head, self.made.told(), Status::InProgress, &[], (None, None))
    }

    /// Returns the response, which has ended.
    fn ended(&self, taken: Taken) -> Value {
        let status = self.status();
        let completed_at = (status == Status::Completed).then(unix_seconds);
        let response = response(&self.head, self.made.told(), status, &self.output, (completed_at, Some(taken)));
        self.made.is_over(&response);
        response
    }
}

impl Writer for TurnWriter {
    fn begin(&mut self, _taken: Taken, out: &mut BytesMut) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.begun();
            self.event(kind, json!({ "response": response }), out);
        }
    }

    fn delta(&mut self, _sequence: usize, delta: &Delta, out: &mut BytesMut) {
        self.log(&delta.logprobs);
        delta.parts.iter().for_each(|part| self.part(part, out));
    }

    fn finish(&mut self, _sequence: usize, finish: Finish, out: &mut BytesMut) {
        self.finish = Some(finish);
        if self.output.is_empty() && self.open.is_none() {
            self.open(Kind::Message, out);
        }
        self.close(self.status(), out);
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        let kind = match self.status() {
            Status::Incomplete => "response.incomplete",
            Status::InProgress | Status::Completed | Status::Failed(..) => "response.completed",
        };
        let response = self.ended(taken);
        self.event(kind, json!({ "response": response }), out);
    }

    fn error(&mut self, failed: &ApiError, out: &mut BytesMut) {
        if self.events == 0 {
            let fields = json!({ "code": failed.code(), "message": failed.message(), "param": failed.param() });
            return self.event("error", fields, out);
        }
        let code = match failed.kind() {
            error::Kind::Load | error::Kind::Limit => "rate_limit_exceeded",
            error::Kind::Request | error::Kind::Service => "server_error",
        };
        let status = Status::Failed(code, failed.message());
        let failed = response(&self.head, self.made.told(), status, &self.output, (None, None));
        self.made.is_over(&failed);
        self.event("response.failed", json!({ "response": failed }), out);
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let mut out = BytesMut::new();
        let mut writer = self.clone();
        let Whole { parts, logprobs, finish, .. } = &sequences[0];
        writer.delta(0, &Delta { parts: parts.clone(), logprobs: logprobs.clone(), tokens: Vec::new() }, &mut out);
        writer.finish(0, *finish, &mut out);
        serde_json::to_vec(&writer.ended(taken)).expect("an answer has string keys")
    }
}
