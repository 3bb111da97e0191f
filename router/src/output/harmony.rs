//! `harmony`: the channels of gpt-oss. It is a form of reasoning and of calls in one. What is on the channel
//! `analysis` is reasoning; messages to a function are calls; what is on `final`, or on `commentary` to no function,
//! is text.
//!
//! ```text
//! <|channel|>analysis<|message|>The user asks ...<|end|><|start|>assistant<|channel|>commentary
//! to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>
//! ```
//!
//! Source: OpenAI, "OpenAI harmony response format" (openai/harmony, `docs/format.md`).

use super::held::{Held, at_most, begins_any};
use super::part::{OutputParser, Part, add};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
const MESSAGE: &str = "<|message|>";
/// What ends a message. A new one may begin without.
const ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", START, CHANNEL];
/// Those of [`ENDS`] that are taken with the message.
const TAKEN_ENDS: usize = 3;
/// Before the name of a tool of the request.
const FUNCTIONS: &str = "functions.";
/// Longest head of a message.
const HEAD_BYTES_MAX: usize = 1024;

/// Markers of the form.
pub(super) const MARKERS: &[&str] = &[START, CHANNEL, CONSTRAIN, MESSAGE, "<|end|>", "<|call|>", "<|return|>"];

/// Parses an answer in channels.
#[derive(Debug)]
pub(super) struct Harmony {
    /// Whether calls are told from text.
    has_calls: bool,
    /// Whether reasoning is told from text.
    has_reasoning: bool,
    held: Held,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// At the beginning, where the prompt may have begun a head.
    Begin,
    /// Among text that is in no message.
    Text,
    /// At the head of a message.
    Head,
    Message(Kind),
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Reasoning,
    Call { is_empty: bool },
}

impl Harmony {
    /// Begins an answer in which these kinds of parts are told from text.
    pub(super) fn new(has_calls: bool, has_reasoning: bool) -> Self {
        Self { has_calls, has_reasoning, held: Held::default(), state: State::Begin }
    }

    /// Goes on to the next state. Returns whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Part>) -> bool {
        match self.state {
            State::Begin => {
                let text = self.held.text();
                if text.is_empty() || begins_any(&[START, CHANNEL, " to="], text) {
                    return false;
                }
                let is_head = [START, CHANNEL, " to="].iter().any(|marker| text.starts_with(marker));
                self.state = if is_head { State::Head } else { State::Text };
            }
            State::Text => {
                if self.held.pass_until(&[START, CHANNEL], Part::Text, out).is_none() {
                    return false;
                }
                self.state = State::Head;
            }
            State::Head => {
                let window = at_most(self.held.text(), HEAD_BYTES_MAX);
                let is_cut = window.len() < self.held.text().len();
                let Some(bytes) = window.find(MESSAGE) else {
                    if !is_cut {
                        return false;
                    }
                    self.head_is_text(out);
                    return true;
                };
                match self.head(&window[..bytes]) {
                    None => self.head_is_text(out),
                    Some((kind, call)) => {
                        self.held.take(bytes + MESSAGE.len());
                        if let Some(name) = call {
                            add(out, Part::ToolBegin { name });
                        }
                        self.state = State::Message(kind);
                    }
                }
            }
            State::Message(kind) => {
                let part = match kind {
                    Kind::Text => Part::Text,
                    Kind::Reasoning => Part::Reasoning,
                    Kind::Call { .. } => Part::ToolArguments,
                };
                let mut passed = Vec::new();
                let found = self.held.pass_until(&ENDS, part, &mut passed);
                let kind = match kind {
                    Kind::Call { is_empty } => Kind::Call { is_empty: is_empty && passed.is_empty() },
                    kind => kind,
                };
                passed.into_iter().for_each(|part| add(out, part));
                let Some(which) = found else {
                    self.state = State::Message(kind);
                    return false;
                };
                end(kind, out);
                if which < TAKEN_ENDS {
                    self.held.take(ENDS[which].len());
                }
                self.state = State::Text;
            }
        }
        true
    }

    /// Gives out the beginning of what is no head. What follows may be one.
    fn head_is_text(&mut self, out: &mut Vec<Part>) {
        add(out, Part::Text(self.held.take(1)));
        self.state = State::Text;
    }

    /// Reads a head: `<|start|>assistant to=R<|channel|>C to=R <|constrain|>T`, where all but one channel or one
    /// recipient may be left out. Returns what the message is, and which tool it calls.
    fn head(&self, head: &str) -> Option<(Kind, Option<String>)> {
        let head = match head.strip_prefix(START) {
            Some(rest) => rest.strip_prefix("assistant")?,
            None => head,
        };
        let (before, after) = head.split_once(CHANNEL).unwrap_or((head, ""));
        let mut recipient = None;
        for word in before.split_whitespace() {
            recipient = Some(word.strip_prefix("to=").filter(|_| recipient.is_none())?);
        }
        let (after, kind) = after.split_once(CONSTRAIN).unwrap_or((after, ""));
        let mut words = after.split_whitespace();
        let channel = words.next().unwrap_or("commentary");
        for word in words {
            match word.strip_prefix("to=") {
                Some(to) if recipient.is_none() => recipient = Some(to),
                None if is_content_type(word) => {}
                Some(_) | None => return None,
            }
        }
        if !kind.split_whitespace().all(is_content_type) {
            return None;
        }
        match (channel, recipient) {
            ("analysis" | "commentary" | "final", Some(to)) => {
                let name = to.strip_prefix(FUNCTIONS).unwrap_or(to);
                let is_call = self.has_calls && !name.is_empty() && !name.contains("<|");
                is_call.then(|| (Kind::Call { is_empty: true }, Some(name.to_owned())))
            }
            ("analysis", None) if self.has_reasoning => Some((Kind::Reasoning, None)),
            ("analysis" | "commentary" | "final", None) => Some((Kind::Text, None)),
            _ => None,
        }
    }
}

impl OutputParser for Harmony {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push(text);
        while self.step(out) {}
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        let rest = self.held.take_all();
        match self.state {
            State::Message(Kind::Call { is_empty }) => {
                let is_empty = is_empty && rest.is_empty();
                add(out, Part::ToolArguments(rest));
                end(Kind::Call { is_empty }, out);
            }
            State::Message(Kind::Reasoning) => add(out, Part::Reasoning(rest)),
            State::Message(Kind::Text) | State::Begin | State::Text | State::Head => add(out, Part::Text(rest)),
        }
    }
}

/// Ends a message. A call without arguments has none: `{}`.
fn end(kind: Kind, out: &mut Vec<Part>) {
    if let Kind::Call { is_empty } = kind {
        if is_empty {
            add(out, Part::ToolArguments("{}".to_owned()));
        }
        add(out, Part::ToolEnd);
    }
}

/// Returns whether `word` says how a message is written.
fn is_content_type(word: &str) -> bool {
    matches!(word, "json" | "code" | "text")
}
