//! `pythonic`: calls as a list in Python's syntax, as Llama 3.2 and Llama 4 write them. The markers are there or not.
//! A list is calls if it begins a line, or follows the marker, and calls a tool that is offered.
//!
//! ```text
//! [get_weather(city="Paris", days=2), get_time()]
//! <|python_start|>[get_time()]<|python_end|>
//! ```
//!
//! Source: "Zero-shot function calling" in Meta's prompt formats of Llama 3.2 and Llama 4.

use super::form::ToolForm;
use super::held::{Held, at_most, begins_any};
use super::json_calls::HEAD_BYTES_MAX;
use super::part::{OutputParser, Part, add};
use super::python::{PythonArguments, Read};
use super::tools::Tools;
use std::sync::Arc;

const START: &str = "<|python_start|>";
const END: &str = "<|python_end|>";

pub(super) const PYTHONIC: ToolForm = ToolForm {
    name: "pythonic",
    markers: &[START, END],
    is_in: |template| template.has("[func_name1(params_name1=params_value1") || template.has(START),
    parser: |tools| Box::new(Pythonic { tools, held: Held::default(), state: State::Text { line_begins: true } }),
};

#[derive(Debug)]
struct Pythonic {
    tools: Arc<Tools>,
    held: Held,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Among text. Only white space of this line was seen: `line_begins`.
    Text { line_begins: bool },
    /// At a list, before its first call.
    List,
    /// At the name of a further call.
    Call,
    /// In the arguments of a call.
    Arguments(PythonArguments),
    /// Behind a call.
    Next,
    /// Behind the list.
    Behind,
}

impl Pythonic {
    /// Goes on to the next state. Returns whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Part>) -> bool {
        let window = at_most(self.held.text(), HEAD_BYTES_MAX);
        let is_cut = window.len() < self.held.text().len();
        let rest = window.trim_start();
        let space = window.len() - rest.len();
        match &mut self.state {
            State::Text { line_begins } => {
                if !pass_text(&mut self.held, line_begins, out) {
                    return false;
                }
                self.state = State::List;
            }
            State::List => {
                let list = rest.strip_prefix(START).unwrap_or(rest).trim_start();
                let call = match list.strip_prefix('[') {
                    Some(call) => self.tools.call(call),
                    None if list.is_empty() => Call::More,
                    None => Call::None,
                };
                match call {
                    Call::More if !is_cut => return false,
                    Call::Some { name, rest } => self.begin(name.to_owned(), window.len() - rest.len(), out),
                    Call::More | Call::None => {
                        add(out, Part::Text(self.held.take(1)));
                        self.state = State::Text { line_begins: false };
                    }
                }
            }
            State::Call => match self.tools.call(rest) {
                Call::More if !is_cut => return false,
                Call::Some { name, rest } => self.begin(name.to_owned(), window.len() - rest.len(), out),
                Call::More | Call::None => self.state = State::Text { line_begins: false },
            },
            State::Arguments(arguments) => match arguments.read(&mut self.held, out) {
                Read::More => return false,
                Read::Done => {
                    add(out, Part::ToolEnd);
                    self.state = State::Next;
                }
                Read::Broken => {
                    add(out, Part::ToolEnd);
                    self.state = State::Text { line_begins: false };
                }
            },
            State::Next => match rest.chars().next() {
                None if !is_cut => return false,
                Some(',') => {
                    self.held.take(space + 1);
                    self.state = State::Call;
                }
                Some(']') => {
                    self.held.take(space + 1);
                    self.state = State::Behind;
                }
                None | Some(_) => self.state = State::Text { line_begins: false },
            },
            State::Behind => {
                if !is_cut && begins_any(&[END], rest) {
                    return false;
                }
                if rest.starts_with(END) {
                    self.held.take(space + END.len());
                }
                self.state = State::Text { line_begins: true };
            }
        }
        true
    }

    fn begin(&mut self, name: String, bytes: usize, out: &mut Vec<Part>) {
        self.held.take(bytes);
        add(out, Part::ToolBegin { name });
        self.state = State::Arguments(PythonArguments::new());
    }
}

impl OutputParser for Pythonic {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push(text);
        while self.step(out) {}
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        if let State::Arguments(_) = self.state {
            add(out, Part::ToolEnd);
        }
        add(out, Part::Text(self.held.take_all()));
    }
}

/// Gives out the text before what may be a list of calls. Returns whether there is such.
fn pass_text(held: &mut Held, line_begins: &mut bool, out: &mut Vec<Part>) -> bool {
    let text = held.text();
    let mut end = text.len();
    let mut found = false;
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        found = rest.starts_with(START) || (*line_begins && c == '[');
        if found || begins_any(&[START], rest) {
            end = at;
            break;
        }
        *line_begins = c == '\n' || (*line_begins && c.is_whitespace());
    }
    add(out, Part::Text(held.take(end)));
    found
}

/// Whether a text begins with a call.
enum Call<'a> {
    More,
    /// The arguments and the bracket that closes them are `rest`.
    Some {
        name: &'a str,
        rest: &'a str,
    },
    None,
}

impl Tools {
    /// Reads the name of a tool that is offered, and an opening bracket.
    fn call<'a>(&self, text: &'a str) -> Call<'a> {
        let text = text.trim_start();
        match text.split_once('(') {
            Some((name, rest)) if self.has(name) => Call::Some { name, rest },
            None if self.has_beginning(text) => Call::More,
            Some(_) | None => Call::None,
        }
    }
}
