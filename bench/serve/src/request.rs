//! The body of a request.

use crate::prompt::{Medium, Message, Prompt, ids, words};
use crate::settings::{Api, Settings};
use crate::workload::Turn;
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// What was said in a conversation so far; makes its prompts.
#[derive(Debug, Default)]
pub(crate) struct History {
    messages: Vec<Message>,
}

impl History {
    /// Returns the prompt of the next turn.
    pub(crate) fn ask(&mut self, settings: &Settings, medium: Medium, turn: &Turn) -> Prompt {
        let (tokens_per_word, overhead) = match medium {
            Medium::Ids(range) => return Prompt::Ids(ids(settings.seed, &turn.segments, range)),
            Medium::Words { tokens_per_word, overhead } => (tokens_per_word, overhead),
        };
        let overhead = if self.messages.is_empty() { overhead } else { 0.0 };
        let content = words(settings.seed, &turn.segments, tokens_per_word, overhead);
        self.messages.push(Message { role: "user", content });
        match settings.api {
            Api::Chat => Prompt::Messages(self.messages.clone()),
            Api::Completions => {
                let texts: Vec<&str> = self.messages.iter().map(|message| message.content.as_str()).collect();
                Prompt::Text(texts.join(" "))
            }
        }
    }

    /// Notes the answer.
    pub(crate) fn answer(&mut self, content: String) {
        self.messages.push(Message { role: "assistant", content });
    }
}

/// Fields of the API that not all servers know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// `ignore_eos`: answers have the length that was asked for.
    pub(crate) ignore_eos: bool,
    /// `stream_options.include_usage`: the server says how many tokens there were.
    pub(crate) usage: bool,
}

/// Makes the body that asks `model` for exactly `output_tokens` tokens after `prompt`, as a stream.
pub(crate) fn body(settings: &Settings, model: &str, dialect: Dialect, prompt: &Prompt, output_tokens: u32) -> Bytes {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("model", json!(model));
    set("max_tokens", json!(output_tokens));
    set("temperature", json!(0));
    set("stream", json!(true));
    if dialect.usage {
        set("stream_options", json!({ "include_usage": true }));
    }
    if dialect.ignore_eos {
        set("ignore_eos", json!(true));
    }
    fields.extend(settings.extra.clone());
    let mut text = serde_json::to_vec(&fields).expect("a map with string keys");
    text.pop();
    text.extend_from_slice(match prompt {
        Prompt::Messages(_) => b",\"messages\":",
        _ => b",\"prompt\":",
    });
    serde_json::to_writer(&mut text, prompt).expect("strings and numbers");
    text.push(b'}');
    text.into()
}
