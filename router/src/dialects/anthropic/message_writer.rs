//! The answer to messages.

use crate::answer::{Delta, Finish, Taken, Whole, Writer};
use crate::api::{ParsedRequest, call_id};
use crate::config::ModelCard;
use crate::dialects::Head;
use crate::error::ApiError;
use crate::output::Part;
use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::{Value, json};

/// How ids of calls begin.
const CALL: &str = "toolu_";

/// Writes an answer.
pub(super) struct MessageWriter {
    head: Head,
    /// The strings that end it.
    stops: Vec<String>,
    /// Ids of calls have nine letters and digits.
    short_ids: bool,
    /// Blocks that have begun.
    blocks: usize,
    /// What the last of them is; `None`: it has ended.
    open: Option<Kind>,
    /// Calls that have begun.
    calls: usize,
    /// Why it ended.
    stop: Option<Finish>,
}

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolUse,
}

/// An answer.
#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Value>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
    usage: Usage,
}

/// What a request took. Tokens that a cache had are not among `input_tokens`.
#[derive(Serialize)]
struct Usage {
    input_tokens: usize,
    cache_creation_input_tokens: usize,
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

impl Usage {
    fn of(taken: Taken) -> Self {
        Self {
            input_tokens: taken.prompt_tokens - taken.cached_tokens,
            // Writing to the cache costs nothing of its own here, and is not told apart.
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: taken.cached_tokens,
            output_tokens: taken.output_tokens,
        }
    }
}

impl MessageWriter {
    /// Begins the answer to `asked`.
    pub(super) fn new(head: Head, asked: &ParsedRequest, card: &ModelCard) -> Self {
        let (stops, short_ids) = (asked.options.stops.clone(), card.forms.has_short_ids());
        Self { head, stops, short_ids, blocks: 0, open: None, calls: 0, stop: None }
    }

    fn message(&self, content: Vec<Value>, stop: Option<(Finish, usize)>, taken: Taken) -> Message<'_> {
        Message {
            id: &self.head.id,
            kind: "message",
            role: "assistant",
            model: &self.head.model,
            content,
            stop_reason: stop.map(|(finish, calls)| stop_reason(finish, calls)),
            stop_sequence: self.stop_sequence(stop.map(|(finish, _)| finish)),
            usage: Usage::of(taken),
        }
    }

    /// Returns the string that ended the answer, if one did.
    fn stop_sequence(&self, stop: Option<Finish>) -> Option<&str> {
        match stop {
            Some(Finish::StopString(at)) => Some(&self.stops[at]),
            Some(Finish::Stop | Finish::Length) | None => None,
        }
    }

    fn call_id(&self, call: usize) -> String {
        call_id(CALL, self.head.request, 0, call, self.short_ids)
    }

    /// Ends the block that is open.
    fn close(&mut self, out: &mut BytesMut) {
        if self.open.take().is_some() {
            event(out, "content_block_stop", json!({ "index": self.blocks - 1 }));
        }
    }

    /// Begins a block of a `kind`.
    fn begin_block(&mut self, kind: Kind, block: Value, out: &mut BytesMut) {
        self.close(out);
        event(out, "content_block_start", json!({ "index": self.blocks, "content_block": block }));
        self.blocks += 1;
        self.open = Some(kind);
    }

    fn part(&mut self, part: &Part, out: &mut BytesMut) {
        let delta = match part {
            Part::Text(text) => {
                if self.open != Some(Kind::Text) {
                    self.begin_block(Kind::Text, text_block(""), out);
                }
                json!({ "type": "text_delta", "text": text })
            }
            Part::Reasoning(thought) => {
                if self.open != Some(Kind::Thinking) {
                    self.begin_block(Kind::Thinking, thinking_block(""), out);
                }
                json!({ "type": "thinking_delta", "thinking": thought })
            }
            Part::ToolBegin { name } => {
                let id = self.call_id(self.calls);
                self.calls += 1;
                return self.begin_block(Kind::ToolUse, tool_block(&id, name, json!({})), out);
            }
            Part::ToolArguments(more) => json!({ "type": "input_json_delta", "partial_json": more }),
            Part::ToolEnd => return self.close(out),
        };
        event(out, "content_block_delta", json!({ "index": self.blocks - 1, "delta": delta }));
    }

    /// Returns the blocks of a whole answer.
    fn content(&self, whole: &Whole) -> Vec<Value> {
        let mut calls = whole.calls().into_iter().enumerate();
        let blocks = whole.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text_block(text)),
            Part::Reasoning(thought) => Some(thinking_block(thought)),
            Part::ToolBegin { .. } => calls.next().map(|(call, (name, arguments))| {
                // A call that was cut off, or is no JSON, has its text as the only field.
                let input = serde_json::from_str::<serde_json::Map<String, Value>>(&arguments).map(Value::Object);
                tool_block(&self.call_id(call), name, input.unwrap_or_else(|_| json!({ "INVALID_JSON": arguments })))
            }),
            Part::ToolArguments(_) | Part::ToolEnd => None,
        });
        let blocks: Vec<Value> = blocks.collect();
        // An answer has a block, even where it says nothing.
        if blocks.is_empty() { vec![text_block("")] } else { blocks }
    }
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Returns a thought. It is not signed here.
fn thinking_block(thought: &str) -> Value {
    json!({ "type": "thinking", "thinking": thought, "signature": "" })
}

fn tool_block(id: &str, name: &str, input: Value) -> Value {
    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
}

/// Returns `stop_reason` of an answer with so many calls.
fn stop_reason(finish: Finish, calls: usize) -> &'static str {
    match finish {
        Finish::Stop if calls > 0 => "tool_use",
        Finish::Stop => "end_turn",
        Finish::StopString(_) => "stop_sequence",
        Finish::Length => "max_tokens",
    }
}

/// Appends an event: `fields` and its type.
fn event(out: &mut BytesMut, kind: &'static str, mut fields: Value) {
    fields["type"] = Value::from(kind);
    out.put_slice(b"event: ");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\ndata: ");
    serde_json::to_writer(out.writer(), &fields).expect("the fields are JSON, and the buffer grows");
    out.put_slice(b"\n\n");
}

impl Writer for MessageWriter {
    fn begin(&mut self, taken: Taken, out: &mut BytesMut) {
        event(out, "message_start", json!({ "message": self.message(Vec::new(), None, taken) }));
    }

    fn delta(&mut self, _sequence: usize, delta: &Delta, out: &mut BytesMut) {
        delta.parts.iter().for_each(|part| self.part(part, out));
    }

    fn finish(&mut self, _sequence: usize, finish: Finish, out: &mut BytesMut) {
        if self.blocks == 0 {
            self.begin_block(Kind::Text, text_block(""), out);
        }
        self.stop = Some(finish);
        self.close(out);
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        let stop_reason = self.stop.map(|finish| stop_reason(finish, self.calls));
        let delta = json!({ "stop_reason": stop_reason, "stop_sequence": self.stop_sequence(self.stop) });
        event(out, "message_delta", json!({ "delta": delta, "usage": Usage::of(taken) }));
        event(out, "message_stop", json!({}));
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        out.put_slice(b"event: error\ndata: ");
        out.put_slice(&super::error(error, self.head.request));
        out.put_slice(b"\n\n");
    }

    fn keep_alive(&self, out: &mut BytesMut) {
        event(out, "ping", json!({}));
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let whole = &sequences[0];
        let message = self.message(self.content(whole), Some((whole.finish, whole.calls().len())), taken);
        serde_json::to_vec(&message).expect("an answer has string keys")
    }
}
