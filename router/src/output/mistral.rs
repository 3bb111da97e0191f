//! `mistral`: the forms of Mistral's models. A marker comes before a list of calls or, since version 11 of its
//! tokenizers, before each call.
//!
//! ```text
//! [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]
//! [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[CALL_ID]Vp0Ry8sQk[ARGS]{}
//! ```
//!
//! Source: mistralai/mistral-common, `tokens/tokenizers/instruct.py`; chat template of
//! mistralai/Mistral-Small-3.2-24B-Instruct-2506.

use super::form::ToolForm;
use super::held::{Held, at_most, begins_any};
use super::json::ValueEnd;
use super::json_calls::{Accept, HEAD_BYTES_MAX, JsonCalls, Step};
use super::part::{OutputParser, Part, add};

const CALLS: &str = "[TOOL_CALLS]";
const CALL_ID: &str = "[CALL_ID]";
const ARGUMENTS: &str = "[ARGS]";

/// Name of the form.
pub(super) const NAME: &str = "mistral";

pub(super) const MISTRAL: ToolForm = ToolForm {
    name: NAME,
    markers: &[CALLS, CALL_ID, ARGUMENTS],
    is_in: |template| template.has(CALLS),
    parser: |_| Box::new(Mistral::default()),
};

#[derive(Debug, Default)]
struct Mistral {
    held: Held,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// Behind the marker, which is held.
    Marked,
    /// In a list of calls.
    List(JsonCalls),
    /// In the arguments of a call.
    Arguments(ValueEnd),
}

impl Mistral {
    /// Goes on to the next state. Returns whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Part>) -> bool {
        match &mut self.state {
            State::Text => {
                if self.held.pass_until(&[CALLS], Part::Text, out).is_none() {
                    return false;
                }
                self.state = State::Marked;
            }
            State::Marked => match marked(self.held.text()) {
                Marked::More => return false,
                Marked::List => self.state = State::List(JsonCalls::new(Accept::Named, CALLS.len())),
                Marked::Call { name, bytes } => {
                    self.held.take(bytes);
                    add(out, Part::ToolBegin { name });
                    self.state = State::Arguments(ValueEnd::default());
                }
                Marked::Text => self.marker_is_text(out),
            },
            State::List(calls) => match calls.step(&mut self.held, out) {
                Step::More => return false,
                Step::Done | Step::Broken => self.state = State::Text,
                Step::NoCall => self.marker_is_text(out),
            },
            State::Arguments(end) => {
                let (bytes, ended) = end.scan(self.held.text());
                add(out, Part::ToolArguments(self.held.take(bytes)));
                if !ended {
                    return false;
                }
                add(out, Part::ToolEnd);
                self.state = State::Text;
            }
        }
        true
    }

    fn marker_is_text(&mut self, out: &mut Vec<Part>) {
        add(out, Part::Text(self.held.take(CALLS.len())));
        self.state = State::Text;
    }
}

impl OutputParser for Mistral {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push(text);
        while self.step(out) {}
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        match &mut self.state {
            State::List(calls) => calls.finish(out),
            State::Arguments(_) => add(out, Part::ToolEnd),
            State::Text | State::Marked => {}
        }
        add(out, Part::Text(self.held.take_all()));
    }
}

/// What follows a marker.
enum Marked {
    More,
    List,
    /// The arguments begin behind `bytes`.
    Call {
        name: String,
        bytes: usize,
    },
    Text,
}

fn marked(held: &str) -> Marked {
    let window = at_most(held, HEAD_BYTES_MAX);
    let more = if window.len() < held.len() { Marked::Text } else { Marked::More };
    let rest = window[CALLS.len()..].trim_start();
    if rest.starts_with('[') {
        return Marked::List;
    }
    let name_end = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
    let (name, mut rest) = rest.split_at(name_end);
    if let Some(behind) = rest.strip_prefix(CALL_ID) {
        rest = behind.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    } else if begins_any(&[CALL_ID], rest) && !rest.is_empty() {
        return more;
    }
    rest = rest.trim_start();
    if begins_any(&[ARGUMENTS], rest) {
        return more;
    }
    rest = rest.strip_prefix(ARGUMENTS).unwrap_or(rest).trim_start();
    match rest.chars().next() {
        None => more,
        Some('{') if !name.is_empty() => Marked::Call { name: name.to_owned(), bytes: window.len() - rest.len() },
        Some(_) => Marked::Text,
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}
