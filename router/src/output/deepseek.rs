//! `deepseek`: the forms of DeepSeek V3 and R1, and of V3.1, which has no word `function` and no block of code.
//!
//! ```text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
//! ```json
//! {"city": "Paris"}
//! ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! ```
//!
//! Source: chat template of deepseek-ai/DeepSeek-R1; section ToolCall of the model card of deepseek-ai/DeepSeek-V3.1.

use super::form::ToolForm;
use super::held::{Held, at_most};
use super::json::{Cursor, Stop, ValueEnd};
use super::json_calls::HEAD_BYTES_MAX;
use super::part::{OutputParser, Part, add};

const CALLS: &str = "<｜tool▁calls▁begin｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
/// Before and behind the arguments in the form of V3.
const BLOCK: &str = "```json";
const BLOCK_END: &str = "```";

pub(super) const DEEPSEEK: ToolForm = ToolForm {
    name: "deepseek",
    markers: &[CALLS, CALL, SEPARATOR, CALL_END, CALLS_END],
    is_in: |template| template.has(CALLS),
    parser: |_| Box::new(DeepSeek::default()),
};

#[derive(Debug, Default)]
struct DeepSeek {
    held: Held,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// At a marker, which is held. `next`: a call came before.
    Marked { next: bool },
    /// In the arguments of a call.
    Arguments { end: ValueEnd, in_block: bool },
    /// Behind them.
    Tail { in_block: bool },
}

impl DeepSeek {
    /// Goes on to the next state. Returns whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Part>) -> bool {
        let window = at_most(self.held.text(), HEAD_BYTES_MAX);
        let is_cut = window.len() < self.held.text().len();
        match &mut self.state {
            State::Text => {
                if self.held.pass_until(&[CALLS, CALL], Part::Text, out).is_none() {
                    return false;
                }
                self.state = State::Marked { next: false };
            }
            State::Marked { next } => match marked(window, *next) {
                Ok(Marked::End { bytes }) => {
                    self.held.take(bytes);
                    self.state = State::Text;
                }
                Ok(Marked::Call { name, bytes, in_block }) => {
                    self.held.take(bytes);
                    add(out, Part::ToolBegin { name });
                    self.state = State::Arguments { end: ValueEnd::default(), in_block };
                }
                Err(Stop::More) if !is_cut => return false,
                Err(_) if *next => self.state = State::Text,
                Err(_) => {
                    // The marker is text, and what follows its first character may be another.
                    add(out, Part::Text(self.held.take(1)));
                    self.state = State::Text;
                }
            },
            State::Arguments { end, in_block } => {
                let in_block = *in_block;
                let (bytes, ended) = end.scan(self.held.text());
                add(out, Part::ToolArguments(self.held.take(bytes)));
                if !ended {
                    return false;
                }
                add(out, Part::ToolEnd);
                self.state = State::Tail { in_block };
            }
            State::Tail { in_block } => match tail(window, *in_block) {
                Ok(bytes) => {
                    self.held.take(bytes);
                    self.state = State::Marked { next: true };
                }
                Err(Stop::More) if !is_cut => return false,
                Err(_) => self.state = State::Text,
            },
        }
        true
    }
}

impl OutputParser for DeepSeek {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push(text);
        while self.step(out) {}
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        if let State::Arguments { .. } = self.state {
            add(out, Part::ToolEnd);
        }
        add(out, Part::Text(self.held.take_all()));
    }
}

/// What begins at a marker.
enum Marked {
    /// A call, whose arguments begin behind `bytes`.
    Call { name: String, bytes: usize, in_block: bool },
    /// The end of the calls.
    End { bytes: usize },
}

fn marked(text: &str, next: bool) -> Result<Marked, Stop> {
    let mut cursor = Cursor::new(text);
    if next {
        match cursor.word(CALLS_END) {
            Ok(()) => return Ok(Marked::End { bytes: cursor.at }),
            Err(Stop::More) => return Err(Stop::More),
            Err(Stop::Other) => {}
        }
    } else {
        // It may be left out.
        let _ = cursor.word(CALLS);
    }
    cursor.word(CALL)?;
    let header = until(&mut cursor, SEPARATOR)?;
    let (name, in_block) = match cursor.peek()? {
        b'{' => (header, false),
        _ if header == "function" => {
            let name = until(&mut cursor, "\n")?;
            cursor.word(BLOCK)?;
            (name, true)
        }
        _ => return Err(Stop::Other),
    };
    let name = name.trim();
    if cursor.peek()? != b'{' || name.is_empty() || name.contains(['<', '\n']) {
        return Err(Stop::Other);
    }
    Ok(Marked::Call { name: name.to_owned(), bytes: cursor.at, in_block })
}

/// Reads the text before `marker`, and the marker.
fn until<'a>(cursor: &mut Cursor<'a>, marker: &str) -> Result<&'a str, Stop> {
    let (text, _) = cursor.rest().split_once(marker).ok_or(Stop::More)?;
    cursor.at += text.len() + marker.len();
    Ok(text)
}

/// Returns the bytes that end a call behind its arguments.
fn tail(text: &str, in_block: bool) -> Result<usize, Stop> {
    let mut cursor = Cursor::new(text);
    if in_block {
        cursor.word(BLOCK_END)?;
    }
    cursor.word(CALL_END)?;
    Ok(cursor.at)
}
