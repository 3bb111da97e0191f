//! Calls as JSON among text: behind markers, or at the beginning of a line.

use super::held::{Held, begins_any};
use super::json_calls::{Accept, HEAD_BYTES_MAX, JsonCalls, Step};
use super::part::{OutputParser, Part, add};
use super::tools::Tools;
use std::sync::Arc;

/// How a form of calls is told from text.
#[derive(Debug)]
pub(super) struct Form {
    /// What comes before a call.
    pub(super) open: &'static str,
    /// What may come behind a marked call; may be empty.
    pub(super) close: &'static str,
    /// What may come between two calls; may be empty.
    pub(super) between: &'static str,
    /// Whether the marker alone makes an object with a name a call. Otherwise it must be a tool that is offered.
    pub(super) is_certain: bool,
    /// Characters that may begin a call of an offered tool without a marker, at the beginning of a line.
    pub(super) bare: &'static [char],
}

/// Parses calls of a [`Form`].
#[derive(Debug)]
pub(super) struct MarkedJson {
    form: &'static Form,
    tools: Arc<Tools>,
    held: Held,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Among text. Only white space of this line was seen: `line_begins`.
    Text { line_begins: bool },
    /// In calls, behind `prefix` bytes that are held until it is certain that they are calls.
    Calls { calls: JsonCalls, prefix: usize, is_marked: bool },
    /// Behind calls.
    Behind { is_marked: bool },
}

impl MarkedJson {
    /// Begins an answer to a request that offers `tools`.
    pub(super) fn new(form: &'static Form, tools: Arc<Tools>) -> Self {
        Self { form, tools, held: Held::default(), state: State::Text { line_begins: true } }
    }

    /// Goes on to the next state. Returns whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Part>) -> bool {
        match &mut self.state {
            State::Text { line_begins } => match pass_text(&mut self.held, self.form, line_begins, out) {
                None => false,
                Some(prefix) => {
                    self.calls(prefix, prefix > 0);
                    true
                }
            },
            State::Calls { calls, prefix, is_marked } => {
                let (prefix, is_marked) = (*prefix, *is_marked);
                match calls.step(&mut self.held, out) {
                    Step::More => return false,
                    Step::Done => self.state = State::Behind { is_marked },
                    Step::Broken => self.state = State::Text { line_begins: false },
                    Step::NoCall => {
                        // What looked like the beginning of a call is text, and so not looked at again.
                        add(out, Part::Text(self.held.take(prefix.max(1))));
                        self.state = State::Text { line_begins: false };
                    }
                }
                true
            }
            State::Behind { is_marked } => {
                let is_marked = *is_marked;
                self.behind(is_marked)
            }
        }
    }

    fn calls(&mut self, prefix: usize, is_marked: bool) {
        let is_certain = is_marked && self.form.is_certain;
        let accept = if is_certain { Accept::Named } else { Accept::Offered(self.tools.clone()) };
        self.state = State::Calls { calls: JsonCalls::new(accept, prefix), prefix, is_marked };
    }

    /// Takes what ends a call, or what comes before the next.
    fn behind(&mut self, is_marked: bool) -> bool {
        let text = self.held.text();
        let rest = text.trim_start();
        let space = text.len() - rest.len();
        let close = if is_marked { self.form.close } else { "" };
        let between = self.form.between;
        if space <= HEAD_BYTES_MAX && (rest.is_empty() || begins_any(&[close, between], rest)) {
            return false;
        }
        if !between.is_empty() && rest.starts_with(between) {
            self.calls(space + between.len(), is_marked);
            return true;
        }
        if !close.is_empty() && rest.starts_with(close) {
            self.held.take(space + close.len());
        }
        self.state = State::Text { line_begins: true };
        true
    }
}

impl OutputParser for MarkedJson {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push(text);
        while self.step(out) {}
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        if let State::Calls { calls, .. } = &mut self.state {
            calls.finish(out);
        }
        add(out, Part::Text(self.held.take_all()));
    }
}

/// Gives out the text before what may be a call. Returns the bytes of its marker; 0 where it is bare.
fn pass_text(held: &mut Held, form: &Form, line_begins: &mut bool, out: &mut Vec<Part>) -> Option<usize> {
    let text = held.text();
    let mut end = text.len();
    let mut found = None;
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        if !form.open.is_empty() && rest.starts_with(form.open) {
            found = Some(form.open.len());
        } else if *line_begins && form.bare.contains(&c) {
            found = Some(0);
        }
        if found.is_some() || begins_any(&[form.open], rest) {
            end = at;
            break;
        }
        *line_begins = c == '\n' || (*line_begins && c.is_whitespace());
    }
    add(out, Part::Text(held.take(end)));
    found
}
