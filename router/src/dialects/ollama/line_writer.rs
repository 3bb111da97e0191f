//! The answer to a chat or a completion: a line of JSON for each piece, or one object.

use crate::answer::{Delta, Finish, Taken, Whole, Writer};
use crate::api::call_id;
use crate::clock::unix_now_ns;
use crate::config::ModelCard;
use crate::dialects::Head;
use crate::dialects::time::rfc3339;
use crate::error::ApiError;
use crate::output::Part;
use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How ids of calls begin.
const CALL: &str = "call_";

/// Where an answer has its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// In a `message`.
    Chat,
    /// In `response`.
    Generate,
}

/// Writes an answer.
pub(super) struct LineWriter {
    form: Form,
    head: Head,
    /// Ids of calls have nine letters and digits.
    short_ids: bool,
    /// Calls that are complete.
    calls: usize,
    /// The one that is not: the name of its tool, and its arguments so far.
    open: Option<(String, String)>,
    /// Why the answer ended.
    finish: Option<Finish>,
}

/// A piece of an answer, or all of it.
#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    created_at: String,
    #[serde(flatten)]
    said: Said,
    done: bool,
    #[serde(flatten)]
    end: Option<End>,
}

/// What a piece says.
#[derive(Serialize)]
#[serde(untagged)]
enum Said {
    Chat { message: Message },
    Generate(Response),
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

#[derive(Serialize)]
struct Response {
    response: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
}

/// How an answer ended, and what it took.
#[derive(Serialize)]
struct End {
    done_reason: &'static str,
    #[serde(flatten)]
    took: Option<Took>,
}

/// What an answer took; times in nanoseconds.
#[derive(Serialize)]
struct Took {
    total_duration: u64,
    /// The model is loaded before its first request.
    load_duration: u64,
    prompt_eval_count: usize,
    prompt_eval_duration: u64,
    eval_count: usize,
    eval_duration: u64,
}

impl Took {
    fn of(taken: Taken) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            total_duration: ns(taken.after),
            load_duration: 0,
            prompt_eval_count: taken.prompt_tokens,
            prompt_eval_duration: ns(taken.first_after),
            eval_count: taken.output_tokens,
            eval_duration: ns(taken.after.saturating_sub(taken.first_after)),
        }
    }
}

impl LineWriter {
    /// Begins an answer.
    pub(super) fn new(form: Form, head: Head, card: &ModelCard) -> Self {
        Self { form, head, short_ids: card.forms.has_short_ids(), calls: 0, open: None, finish: None }
    }

    /// Returns a piece with this text, these thoughts and these calls, which only chats have.
    fn line(&self, content: String, thinking: String, tool_calls: Vec<Value>) -> Line<'_> {
        let said = match self.form {
            Form::Chat => Said::Chat { message: Message { role: "assistant", content, thinking, tool_calls } },
            Form::Generate => Said::Generate(Response { response: content, thinking }),
        };
        let created_at = rfc3339(unix_now_ns());
        Line { model: &self.head.model, created_at, said, done: false, end: None }
    }

    /// Returns a call. Arguments that are cut off, or no object, have their text as the only field.
    fn call(&self, at: usize, name: &str, arguments: &str) -> Value {
        let object = serde_json::from_str::<Map<String, Value>>(arguments).map(Value::Object);
        let arguments = object.unwrap_or_else(|_| json!({ "INVALID_JSON": arguments }));
        let id = call_id(CALL, self.head.request, 0, at, self.short_ids);
        json!({ "id": id, "function": { "index": at, "name": name, "arguments": arguments } })
    }

    /// Appends what a part says. A call is told once it is complete.
    fn part(&mut self, part: &Part, out: &mut BytesMut) {
        let none = String::new;
        match part {
            Part::Text(text) => append(&self.line(text.clone(), none(), Vec::new()), out),
            Part::Reasoning(thought) => append(&self.line(none(), thought.clone(), Vec::new()), out),
            Part::ToolBegin { name } => self.open = Some((name.clone(), none())),
            Part::ToolArguments(more) => self.open.iter_mut().for_each(|(_, arguments)| arguments.push_str(more)),
            Part::ToolEnd => {
                let Some((name, arguments)) = self.open.take() else { return };
                append(&self.line(none(), none(), vec![self.call(self.calls, &name, &arguments)]), out);
                self.calls += 1;
            }
        }
    }
}

fn done_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopString(_) => "stop",
        Finish::Length => "length",
    }
}

fn append(line: &Line<'_>, out: &mut BytesMut) {
    serde_json::to_writer(out.writer(), line).expect("a line has string keys, and the buffer grows");
    out.put_u8(b'\n');
}

impl Writer for LineWriter {
    fn delta(&mut self, _sequence: usize, delta: &Delta, out: &mut BytesMut) {
        delta.parts.iter().for_each(|part| self.part(part, out));
    }

    fn finish(&mut self, _sequence: usize, finish: Finish, _out: &mut BytesMut) {
        self.finish = Some(finish);
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        let end = End { done_reason: done_reason(self.finish.unwrap_or(Finish::Stop)), took: Some(Took::of(taken)) };
        let line = self.line(String::new(), String::new(), Vec::new());
        append(&Line { done: true, end: Some(end), ..line }, out);
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        out.put_slice(&super::error(error));
        out.put_u8(b'\n');
    }

    /// Appends a space: readers of lines find it before the next one, where JSON may have it.
    fn keep_alive(&self, out: &mut BytesMut) {
        out.put_u8(b' ');
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let (line, end) = match sequences.first() {
            Some(whole) => {
                let calls = whole.calls().into_iter().enumerate();
                let calls = calls.map(|(at, (name, arguments))| self.call(at, name, &arguments)).collect();
                let line = self.line(whole.text(), whole.reasoning(), calls);
                (line, End { done_reason: done_reason(whole.finish), took: Some(Took::of(taken)) })
            }
            // Nothing was asked: the model is there.
            None => (self.line(String::new(), String::new(), Vec::new()), End { done_reason: "load", took: None }),
        };
        let line = Line { done: true, end: Some(end), ..line };
        serde_json::to_vec(&line).expect("an answer has string keys")
    }
}
