//! `qwen3_coder`: the XML form of Qwen3-Coder. The types of arguments come from the tools' schemas.
//!
//! ```text
//! <tool_call>
//! <function=get_weather>
//! <parameter=city>
//! Paris
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! Source: chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct.

use super::form::ToolForm;
use super::held::{Held, at_most};
use super::json::{Cursor, Stop, escaped, quoted};
use super::json_calls::HEAD_BYTES_MAX;
use super::part::{OutputParser, Part, add};
use super::tools::{ArgumentType, Tools};
use serde_json::Value;
use std::sync::Arc;

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
/// The end of a value. The line break before it is no part of the value.
const PARAMETER_ENDS: [&str; 2] = ["\n</parameter>", "</parameter>"];

pub(super) const QWEN3_CODER: ToolForm = ToolForm {
    name: "qwen3_coder",
    markers: &[CALL, CALL_END],
    is_in: |template| template.has(FUNCTION) && template.has(PARAMETER),
    parser: |tools| Box::new(Qwen3Coder { tools, held: Held::default(), state: State::Text }),
};

#[derive(Debug)]
struct Qwen3Coder {
    tools: Arc<Tools>,
    held: Held,
    state: State,
}

#[derive(Debug)]
enum State {
    Text,
    /// At a marker, which is held.
    Marked,
    /// Between arguments of the tool `name`.
    Body {
        name: String,
        is_first: bool,
    },
    /// In a value that is a string.
    String {
        name: String,
    },
    /// In a value whose end decides what it is.
    Value {
        name: String,
        kind: ArgumentType,
    },
    /// Behind a call.
    Behind,
}

impl Qwen3Coder {
    /// Goes on to the next state. Returns whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Part>) -> bool {
        let window = at_most(self.held.text(), HEAD_BYTES_MAX);
        let is_cut = window.len() < self.held.text().len();
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text => {
                if self.held.pass_until(&[CALL, FUNCTION], Part::Text, out).is_none() {
                    return false;
                }
                self.state = State::Marked;
            }
            State::Marked => match function(window) {
                Ok((name, bytes)) => {
                    self.held.take(bytes);
                    add(out, Part::ToolBegin { name: name.clone() });
                    add(out, Part::ToolArguments("{".to_owned()));
                    self.state = State::Body { name, is_first: true };
                }
                Err(Stop::More) if !is_cut => {
                    self.state = State::Marked;
                    return false;
                }
                // The marker is text, and what follows may be another.
                Err(_) => add(out, Part::Text(self.held.take(1))),
            },
            State::Body { name, is_first } => return self.step_body(name, is_first, out),
            State::String { name } => {
                let argument = |text: String| Part::ToolArguments(escaped(&text));
                let Some(which) = self.held.pass_until(&PARAMETER_ENDS, argument, out) else {
                    self.state = State::String { name };
                    return false;
                };
                self.held.take(PARAMETER_ENDS[which].len());
                add(out, Part::ToolArguments("\"".to_owned()));
                self.state = State::Body { name, is_first: false };
            }
            State::Value { name, kind } => return self.step_value(name, kind, out),
            State::Behind => {
                let mut cursor = Cursor::new(window);
                match cursor.word(CALL_END) {
                    Ok(()) => {
                        let bytes = cursor.at;
                        self.held.take(bytes);
                    }
                    Err(Stop::More) if !is_cut => {
                        self.state = State::Behind;
                        return false;
                    }
                    Err(_) => {}
                }
            }
        }
        true
    }

    /// Takes the next argument of a call of the tool `name`, or its end. Returns whether there may be more to do.
    fn step_body(&mut self, name: String, is_first: bool, out: &mut Vec<Part>) -> bool {
        let window = at_most(self.held.text(), HEAD_BYTES_MAX);
        let is_cut = window.len() < self.held.text().len();
        match body(window) {
            Ok(Body::Parameter { key, bytes }) => {
                self.held.take(bytes);
                let comma = if is_first { "" } else { ", " };
                add(out, Part::ToolArguments(format!("{comma}{}: ", quoted(&key))));
                self.state = match self.tools.argument_type(&name, &key) {
                    ArgumentType::String => {
                        add(out, Part::ToolArguments("\"".to_owned()));
                        State::String { name }
                    }
                    kind => State::Value { name, kind },
                };
            }
            Ok(Body::End { bytes }) => {
                self.held.take(bytes);
                end(out);
                self.state = State::Behind;
            }
            Err(Stop::More) if !is_cut => {
                self.state = State::Body { name, is_first };
                return false;
            }
            Err(_) => end(out),
        }
        true
    }

    /// Waits for the end of a value of the tool `name`, which decides what it is. Returns whether there may be more to
    /// do.
    fn step_value(&mut self, name: String, kind: ArgumentType, out: &mut Vec<Part>) -> bool {
        let window = at_most(self.held.text(), HEAD_BYTES_MAX);
        let is_cut = window.len() < self.held.text().len();
        let found = PARAMETER_ENDS.iter().filter_map(|end| window.find(end).map(|at| (at, end.len()))).min();
        match found {
            Some((bytes, end)) => {
                add(out, Part::ToolArguments(value(&self.held.take(bytes), kind)));
                self.held.take(end);
                self.state = State::Body { name, is_first: false };
            }
            // What is too long to wait for is a string.
            None if is_cut => {
                add(out, Part::ToolArguments("\"".to_owned()));
                self.state = State::String { name };
            }
            None => {
                self.state = State::Value { name, kind };
                return false;
            }
        }
        true
    }
}

impl OutputParser for Qwen3Coder {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push(text);
        while self.step(out) {}
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text | State::Marked | State::Behind => {}
            State::Body { .. } => end(out),
            State::String { .. } => {
                add(out, Part::ToolArguments(format!("{}\"", escaped(&self.held.take_all()))));
                end(out);
            }
            State::Value { kind, .. } => {
                add(out, Part::ToolArguments(value(&self.held.take_all(), kind)));
                end(out);
            }
        }
        add(out, Part::Text(self.held.take_all()));
    }
}

fn end(out: &mut Vec<Part>) {
    add(out, Part::ToolArguments("}".to_owned()));
    add(out, Part::ToolEnd);
}

/// Reads the beginning of a call: the name of its tool, and the bytes before its body.
fn function(text: &str) -> Result<(String, usize), Stop> {
    let mut cursor = Cursor::new(text);
    // Some answers leave it out.
    let _ = cursor.word(CALL);
    cursor.word(FUNCTION)?;
    Ok((name(&mut cursor)?, cursor.at))
}

/// Reads a name and the end of its tag.
fn name(cursor: &mut Cursor<'_>) -> Result<String, Stop> {
    let rest = cursor.rest();
    let end = rest.find(['>', '<', '\n']).ok_or(Stop::More)?;
    if end == 0 || !rest[end..].starts_with('>') {
        return Err(Stop::Other);
    }
    cursor.at += end + 1;
    Ok(rest[..end].to_owned())
}

/// What comes between arguments.
enum Body {
    /// An argument, whose value begins behind `bytes`.
    Parameter { key: String, bytes: usize },
    /// The end of the call.
    End { bytes: usize },
}

fn body(text: &str) -> Result<Body, Stop> {
    let mut cursor = Cursor::new(text);
    match cursor.word(FUNCTION_END) {
        Ok(()) => return Ok(Body::End { bytes: cursor.at }),
        Err(Stop::More) => return Err(Stop::More),
        Err(Stop::Other) => {}
    }
    cursor.word(PARAMETER)?;
    let key = name(&mut cursor)?;
    // The line break behind the tag is no part of the value.
    match cursor.rest().chars().next() {
        None => Err(Stop::More),
        Some('\n') => Ok(Body::Parameter { key, bytes: cursor.at + 1 }),
        Some(_) => Ok(Body::Parameter { key, bytes: cursor.at }),
    }
}

/// Returns the JSON that the text of a value stands for. What is no JSON is a string.
fn value(text: &str, kind: ArgumentType) -> String {
    let json = match text.trim() {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    };
    match serde_json::from_str::<Value>(json) {
        Ok(Value::String(_)) if kind == ArgumentType::Any => quoted(text),
        Ok(_) => json.to_owned(),
        Err(_) => quoted(text),
    }
}
