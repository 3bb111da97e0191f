//! Requests whose answers are known to be one and the same wherever they are computed, and what their answers say.

use crate::http::{Connection, post};
use crate::process::Process;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) path: &'static str,
    pub(crate) body: Value,
}

/// What must be equal in all answers to an [`Ask`].
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Said {
    pub(crate) choices: BTreeMap<u64, Choice>,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
}

/// One sequence of an answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) finish: String,
    /// Lists of log probabilities, and of what belongs to them, by name. Empty where nobody asked.
    logprobs: BTreeMap<String, Vec<Value>>,
}

/// How many prompt tokens a cache had; which depends on what was computed before.
pub(crate) type Cached = u64;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETION: &str = "/v1/completions";

impl Ask {
    /// A chat with the bundled model about `question`; `more` are further fields.
    pub(crate) fn chat(question: &str, more: Value) -> Self {
        Self::of(CHAT, json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": question }] }), more)
    }

    /// A completion.
    pub(crate) fn completion(model: &str, prompt: impl Into<Value>, more: Value) -> Self {
        Self::of(COMPLETION, json!({ "model": model, "prompt": prompt.into() }), more)
    }

    fn of(path: &'static str, mut body: Value, more: Value) -> Self {
        let (Value::Object(fields), Value::Object(more)) = (&mut body, more) else { panic!("bodies are objects") };
        fields.extend(more);
        Self { path, body }
    }

    /// The answer in one piece.
    pub(crate) fn whole(&self, server: &Process) -> (Said, Cached) {
        let answer = server.post(self.path, &self.body);
        assert_eq!(answer.head.status, 200, "{} to {}", answer.text(), self.body);
        let answer = answer.json();
        let mut said = Said::new(&answer["usage"]);
        for choice in list(&answer["choices"]) {
            let text = if self.path == CHAT { &choice["message"]["content"] } else { &choice["text"] };
            said.add(choice, text);
        }
        (said, cached(&answer["usage"]))
    }

    /// The answer as a stream, put together.
    pub(crate) fn streamed(&self, server: &Process) -> (Said, Cached) {
        self.rest_of(self.begin_stream(server))
    }

    /// The answer of a stream whose head was read, put together.
    pub(crate) fn rest_of(&self, mut connection: Connection) -> (Said, Cached) {
        let mut chunks = Vec::new();
        loop {
            let event = connection.event().expect("the stream goes on").expect("a stream ends with [DONE]");
            if event == "[DONE]" {
                break;
            }
            chunks.push(serde_json::from_str::<Value>(&event).expect("events are JSON"));
        }
        assert_eq!(connection.event().expect("the body ends"), None, "nothing follows [DONE]");
        let last = chunks.pop().expect("usage was asked for");
        assert_eq!(last["choices"], json!([]), "the last chunk is the usage");
        let mut said = Said::new(&last["usage"]);
        for chunk in &chunks {
            assert_eq!(chunk["id"], last["id"], "all chunks have one id");
            for choice in list(&chunk["choices"]) {
                said.add(choice, if self.path == CHAT { &choice["delta"]["content"] } else { &choice["text"] });
            }
        }
        (said, cached(&last["usage"]))
    }

    /// Sends it as a stream and reads the head of the answer.
    pub(crate) fn begin_stream(&self, server: &Process) -> Connection {
        let mut connection = server.connect();
        connection.send(&self.for_stream()).expect("the service reads");
        let head = connection.head().expect("the service answers");
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream; charset=utf-8")));
        connection
    }

    /// The bytes that ask for a stream.
    pub(crate) fn for_stream(&self) -> Vec<u8> {
        let mut body = self.body.clone();
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        post(self.path, &body)
    }
}

impl Said {
    fn new(usage: &Value) -> Self {
        let count = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("{name} in {usage}"));
        let (prompt_tokens, completion_tokens) = (count("prompt_tokens"), count("completion_tokens"));
        assert_eq!(count("total_tokens"), prompt_tokens + completion_tokens);
        Self { choices: BTreeMap::new(), prompt_tokens, completion_tokens }
    }

    /// Adds a piece of a sequence.
    fn add(&mut self, choice: &Value, text: &Value) {
        let of = self.choices.entry(choice["index"].as_u64().expect("a choice has its index")).or_default();
        assert_eq!(of.finish, "", "nothing follows the end of a sequence");
        of.text += text.as_str().unwrap_or_default();
        if let Some(finish) = choice["finish_reason"].as_str() {
            finish.clone_into(&mut of.finish);
        }
        for (name, values) in choice["logprobs"].as_object().into_iter().flatten() {
            of.logprobs.entry(name.clone()).or_default().extend(values.as_array().into_iter().flatten().cloned());
        }
    }

    /// Panics unless the answer has what every answer to `ask` has.
    pub(crate) fn check_form(&self, ask: &Ask) {
        let prompts = if let Some(Value::Array(prompts)) = ask.body.get("prompt") {
            if prompts.iter().any(Value::is_number) { 1 } else { prompts.len() as u64 }
        } else {
            1
        };
        let choices = prompts * ask.body["n"].as_u64().unwrap_or(1);
        assert!(self.choices.keys().copied().eq(0..choices), "{choices} choices for {}", ask.body);
        for choice in self.choices.values() {
            assert!(["stop", "length"].contains(&choice.finish.as_str()), "{choice:?}");
            let logged = choice.logprobs.values().map(Vec::len).max().unwrap_or(0);
            let asked = ask.body.get("logprobs").is_some();
            assert_eq!(logged > 0, asked, "log probabilities where they are asked for: {choice:?}");
        }
        if choices > 1 && ask.body["temperature"].as_f64().is_some_and(|temperature| temperature > 1.0) {
            let texts: BTreeSet<&str> = self.choices.values().map(|choice| choice.text.as_str()).collect();
            assert!(texts.len() > 1, "choices are drawn apart: {texts:?}");
        }
        if let Some(stop) = ask.body["stop"].as_str() {
            assert!(self.choices.values().all(|choice| !choice.text.contains(stop)), "{stop:?} is not shown");
        }
    }
}

/// Asks everything, `at_once` requests at a time, and compares with what was said before.
pub(crate) fn check_all(server: &Process, asks: &[(Ask, Said)], at_once: usize, streamed: bool) {
    let next = AtomicUsize::new(0);
    let client = || {
        while let Some((ask, wanted)) = asks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (said, _) = if streamed { ask.streamed(server) } else { ask.whole(server) };
            assert_eq!(said, *wanted, "{at_once} at once, streamed: {streamed}: {}", ask.body);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(client);
        }
    });
}

fn cached(usage: &Value) -> Cached {
    usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("usage tells what was cached")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
