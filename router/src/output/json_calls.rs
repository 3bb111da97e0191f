//! Calls as JSON, which several forms share: `{"name": "f", "arguments": {...}}`, or a list of such objects.

use super::held::{Held, at_most};
use super::json::{Cursor, Stop, ValueEnd};
use super::part::{Part, add, add_call};
use super::tools::Tools;
use std::sync::Arc;

/// Most bytes before the arguments of a call. An object that has no name until then is no call.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;

/// Which objects are calls.
#[derive(Clone, Debug)]
pub(super) enum Accept {
    /// Those with a name. A marker says that they are calls.
    Named,
    /// Those with arguments and the name of a tool that is offered. Others may be an answer in JSON.
    Offered(Arc<Tools>),
}

/// What came of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// More text is needed.
    More,
    /// The last call is complete. What is held follows it.
    Done,
    /// There is no call. Nothing was taken from what is held.
    NoCall,
    /// There was a call, and what is held does not belong to it.
    Broken,
}

/// Reads calls from the beginning of what is held.
#[derive(Clone, Debug)]
pub(super) struct JsonCalls {
    accept: Accept,
    /// Bytes of what is held that come before the calls: a marker. They are taken with the first call.
    prefix: usize,
    is_list: bool,
    has_call: bool,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Before the first call.
    Begin,
    /// In a call before its arguments.
    Head,
    /// In its arguments.
    Arguments(ValueEnd),
    /// Behind its arguments.
    Tail,
    /// Behind a call.
    Next,
}

/// The beginning of a call.
enum Head {
    /// An object of arguments begins behind `bytes`.
    Open { name: String, bytes: usize },
    /// The call's arguments are complete behind `bytes`; the object is not.
    Whole { name: String, arguments: String, bytes: usize },
}

impl JsonCalls {
    /// Begins behind the first `prefix` bytes of what is held.
    pub(super) fn new(accept: Accept, prefix: usize) -> Self {
        Self { accept, prefix, is_list: false, has_call: false, state: State::Begin }
    }

    /// Reads as far as the text goes.
    pub(super) fn step(&mut self, held: &mut Held, out: &mut Vec<Part>) -> Step {
        loop {
            let window = at_most(&held.text()[self.prefix..], HEAD_BYTES_MAX);
            let is_cut = window.len() < held.text().len() - self.prefix;
            let read = match &mut self.state {
                State::Begin => self.begin(window),
                State::Head => head(window, &self.accept).map(|head| self.open(head, held, out)),
                State::Arguments(end) => {
                    let (bytes, ended) = end.scan(held.text());
                    add(out, Part::ToolArguments(held.take(bytes)));
                    if !ended {
                        return Step::More;
                    }
                    add(out, Part::ToolEnd);
                    self.state = State::Tail;
                    Ok(())
                }
                State::Tail => tail(window).map(|bytes| {
                    held.take(bytes);
                    self.state = State::Next;
                }),
                State::Next if !self.is_list => return Step::Done,
                State::Next => match next(window) {
                    Ok((bytes, is_last)) => {
                        held.take(bytes);
                        self.state = State::Head;
                        if is_last {
                            return Step::Done;
                        }
                        Ok(())
                    }
                    Err(stop) => Err(stop),
                },
            };
            match read {
                Ok(()) => {}
                Err(Stop::More) if !is_cut => return Step::More,
                Err(_) if self.has_call => return Step::Broken,
                Err(_) => return Step::NoCall,
            }
        }
    }

    /// Ends the call that is open. What is held is no call.
    pub(super) fn finish(&mut self, out: &mut Vec<Part>) {
        if let State::Arguments(_) = self.state {
            add(out, Part::ToolEnd);
        }
    }

    fn begin(&mut self, text: &str) -> Result<(), Stop> {
        let mut cursor = Cursor::new(text);
        self.is_list = cursor.peek()? == b'[';
        if self.is_list {
            cursor.at += 1;
        }
        if cursor.peek()? != b'{' {
            return Err(Stop::Other);
        }
        self.prefix += cursor.at;
        self.state = State::Head;
        Ok(())
    }

    fn open(&mut self, head: Head, held: &mut Held, out: &mut Vec<Part>) {
        let (Head::Open { bytes, .. } | Head::Whole { bytes, .. }) = head;
        held.take(self.prefix + bytes);
        self.prefix = 0;
        self.has_call = true;
        match head {
            Head::Open { name, .. } => {
                add(out, Part::ToolBegin { name });
                self.state = State::Arguments(ValueEnd::default());
            }
            Head::Whole { name, arguments, .. } => {
                add_call(out, name, arguments);
                self.state = State::Tail;
            }
        }
    }
}

fn head(text: &str, accept: &Accept) -> Result<Head, Stop> {
    let mut cursor = Cursor::new(text);
    cursor.expect(b'{')?;
    let (mut name, mut arguments) = (None, None);
    let mut is_first = true;
    loop {
        match (cursor.peek()?, &name) {
            (b'}', Some(_)) if matches!(accept, Accept::Named) => {}
            (b'}', _) => return Err(Stop::Other),
            _ => {
                if !is_first {
                    cursor.expect(b',')?;
                }
                is_first = false;
                let key = cursor.string()?;
                cursor.expect(b':')?;
                match key.as_str() {
                    "name" if name.is_none() => name = Some(tool_name(&mut cursor, accept)?),
                    "arguments" | "parameters" => match (cursor.peek()?, name.take()) {
                        (b'{', Some(name)) => return Ok(Head::Open { name, bytes: cursor.at }),
                        (_, name_before) => {
                            name = name_before;
                            arguments = Some(plain_arguments(cursor.value()?));
                        }
                    },
                    key => frame_value(key, &mut cursor)?,
                }
                if name.is_none() || arguments.is_none() {
                    continue;
                }
            }
        }
        let name = name.take().ok_or(Stop::Other)?;
        let arguments = arguments.take().unwrap_or_else(|| "{}".to_owned());
        return Ok(Head::Whole { name, arguments, bytes: cursor.at });
    }
}

fn tool_name(cursor: &mut Cursor<'_>, accept: &Accept) -> Result<String, Stop> {
    let name = cursor.string()?;
    match accept {
        Accept::Offered(tools) if !tools.has(&name) => Err(Stop::Other),
        Accept::Named | Accept::Offered(_) if name.is_empty() => Err(Stop::Other),
        Accept::Named | Accept::Offered(_) => Ok(name),
    }
}

/// Reads the value of a field that says nothing about the call: ids are the API's matter.
fn frame_value(key: &str, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
    match key {
        "id" => cursor.value().map(|_| ()),
        "type" => cursor.word("\"function\""),
        _ => Err(Stop::Other),
    }
}

/// Returns arguments that are no open object: none, or some models' object inside of a string.
fn plain_arguments(value: &str) -> String {
    if value == "null" {
        return "{}".to_owned();
    }
    match serde_json::from_str::<String>(value) {
        Ok(inner) if inner.trim_start().starts_with('{') => inner,
        _ => value.to_owned(),
    }
}

/// Returns the bytes that end the object of a call behind its arguments.
fn tail(text: &str) -> Result<usize, Stop> {
    let mut cursor = Cursor::new(text);
    while cursor.peek()? == b',' {
        cursor.at += 1;
        let key = cursor.string()?;
        cursor.expect(b':')?;
        frame_value(&key, &mut cursor)?;
    }
    cursor.expect(b'}')?;
    Ok(cursor.at)
}

/// Returns the bytes behind a call of a list, and whether it is the last.
fn next(text: &str) -> Result<(usize, bool), Stop> {
    let mut cursor = Cursor::new(text);
    match cursor.peek()? {
        b']' => Ok((cursor.at + 1, true)),
        b',' => {
            cursor.at += 1;
            match cursor.peek()? {
                b'{' => Ok((cursor.at, false)),
                _ => Err(Stop::Other),
            }
        }
        _ => Err(Stop::Other),
    }
}
