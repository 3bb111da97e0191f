//! Arguments of a call in Python's syntax, as JSON while they stream: `city="Paris", days=[1, 2])`.

use super::held::{Held, at_most};
use super::json::{escaped, quoted};
use super::part::{Part, add};

/// Longest number or name.
const WORD_BYTES_MAX: usize = 256;
/// Deepest nesting of lists and dictionaries.
const DEPTH_MAX: usize = 64;

/// What came of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// More text is needed.
    More,
    /// The closing bracket of the call was read.
    Done,
    /// What is held is no such argument.
    Broken,
}

/// Reads arguments up to the bracket that closes the call.
#[derive(Clone, Debug)]
pub(super) struct PythonArguments {
    at: At,
    open: Vec<Bracket>,
    /// Before the next item.
    comma: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// Before the name of an argument.
    Name,
    /// Before a value, or before the bracket that closes a list.
    Value,
    /// Before a key, or before the bracket that closes a dictionary.
    Key,
    /// In a string with these quotes.
    String { quote: char, is_key: bool },
    /// Behind a key.
    BehindKey,
    /// Behind a value.
    Behind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bracket {
    List,
    Tuple,
    Dictionary,
}

impl PythonArguments {
    /// Begins behind the opening bracket of a call.
    pub(super) fn new() -> Self {
        Self { at: At::Name, open: Vec::new(), comma: "{" }
    }

    /// Reads as far as the text goes.
    pub(super) fn read(&mut self, held: &mut Held, out: &mut Vec<Part>) -> Read {
        loop {
            if let At::String { quote, is_key } = self.at {
                if !self.string(quote, is_key, held, out) {
                    return Read::More;
                }
                continue;
            }
            let space = held.text().len() - held.text().trim_start().len();
            held.take(space);
            let Some(first) = held.text().chars().next() else { return Read::More };
            let read = match (self.at, first) {
                (At::Name, ')') => {
                    held.take(1);
                    add(out, Part::ToolArguments(if self.comma == "{" { "{}" } else { "}" }.to_owned()));
                    return Read::Done;
                }
                (At::Name, _) => self.name(held, out),
                (At::BehindKey, ':') => {
                    held.take(1);
                    add(out, Part::ToolArguments(": ".to_owned()));
                    self.comma = "";
                    self.at = At::Value;
                    None
                }
                (At::Behind, ',') => {
                    held.take(1);
                    self.comma = ", ";
                    self.at = match self.open.last() {
                        None => At::Name,
                        Some(Bracket::Dictionary) => At::Key,
                        Some(Bracket::List | Bracket::Tuple) => At::Value,
                    };
                    None
                }
                (At::Behind, ')') if self.open.is_empty() => {
                    self.at = At::Name;
                    None
                }
                (At::Value | At::Key | At::Behind, ']' | ')' | '}') => self.close(first, held, out),
                (At::Value, '[' | '(' | '{') => self.open(first, held, out),
                (At::Value | At::Key, '"' | '\'') => {
                    held.take(1);
                    add(out, Part::ToolArguments(format!("{}\"", self.comma)));
                    self.at = At::String { quote: first, is_key: self.at == At::Key };
                    None
                }
                (At::Value | At::Key, _) => self.word(held, out),
                (At::BehindKey | At::Behind | At::String { .. }, _) => Some(Read::Broken),
            };
            if let Some(read) = read {
                return read;
            }
        }
    }

    /// Reads the name of an argument.
    fn name(&mut self, held: &mut Held, out: &mut Vec<Part>) -> Option<Read> {
        let window = at_most(held.text(), WORD_BYTES_MAX);
        let more = if window.len() < held.text().len() { Read::Broken } else { Read::More };
        let Some(end) = window.find(|c: char| !(c.is_alphanumeric() || c == '_')) else { return Some(more) };
        let behind = window[end..].trim_start();
        match behind.chars().next() {
            None => return Some(more),
            Some('=') if end > 0 => {}
            Some(_) => return Some(Read::Broken),
        }
        let bytes = window.len() - behind.len() + 1;
        let name = &held.take(bytes)[..end];
        add(out, Part::ToolArguments(format!("{}{}: ", self.comma, quoted(name))));
        self.comma = "";
        self.at = At::Value;
        None
    }

    fn open(&mut self, bracket: char, held: &mut Held, out: &mut Vec<Part>) -> Option<Read> {
        if self.open.len() == DEPTH_MAX {
            return Some(Read::Broken);
        }
        held.take(1);
        let (bracket, json, at) = match bracket {
            '{' => (Bracket::Dictionary, "{", At::Key),
            '(' => (Bracket::Tuple, "[", At::Value),
            _ => (Bracket::List, "[", At::Value),
        };
        add(out, Part::ToolArguments(format!("{}{json}", self.comma)));
        self.open.push(bracket);
        self.comma = "";
        self.at = at;
        None
    }

    fn close(&mut self, bracket: char, held: &mut Held, out: &mut Vec<Part>) -> Option<Read> {
        let json = match (self.open.last(), bracket) {
            (Some(Bracket::Dictionary), '}') => "}",
            (Some(Bracket::List), ']') | (Some(Bracket::Tuple), ')') => "]",
            _ => return Some(Read::Broken),
        };
        // A value must follow a key.
        if self.at == At::Value && self.open.last() == Some(&Bracket::Dictionary) {
            return Some(Read::Broken);
        }
        held.take(1);
        add(out, Part::ToolArguments(json.to_owned()));
        self.open.pop();
        self.at = At::Behind;
        None
    }

    /// Reads a number or a name. What JSON does not have is a string.
    fn word(&mut self, held: &mut Held, out: &mut Vec<Part>) -> Option<Read> {
        let window = at_most(held.text(), WORD_BYTES_MAX);
        let more = if window.len() < held.text().len() { Read::Broken } else { Read::More };
        let is_end = |c: char| c.is_whitespace() || ",:=()[]{}\"'".contains(c);
        let Some(end) = window.find(is_end) else { return Some(more) };
        if end == 0 {
            return Some(Read::Broken);
        }
        let word = held.take(end);
        let json = match word.as_str() {
            "True" => "true".to_owned(),
            "False" => "false".to_owned(),
            "None" => "null".to_owned(),
            word if serde_json::from_str::<serde_json::Value>(word).is_ok() => word.to_owned(),
            word => quoted(word),
        };
        let is_key = self.at == At::Key;
        let json = if is_key && !json.starts_with('"') { quoted(&json) } else { json };
        add(out, Part::ToolArguments(format!("{}{json}", self.comma)));
        self.at = if is_key { At::BehindKey } else { At::Behind };
        None
    }

    /// Reads more of a string. Returns whether it ended.
    fn string(&mut self, quote: char, is_key: bool, held: &mut Held, out: &mut Vec<Part>) -> bool {
        let mut text = String::new();
        let mut read = 0;
        let mut ended = false;
        while let Some(c) = held.text()[read..].chars().next() {
            if c == quote {
                read += 1;
                ended = true;
                break;
            }
            if c != '\\' {
                text.push(c);
                read += c.len_utf8();
                continue;
            }
            let Some(bytes) = escape(&held.text()[read..], &mut text) else { break };
            read += bytes;
        }
        held.take(read);
        add(out, Part::ToolArguments(escaped(&text)));
        if ended {
            add(out, Part::ToolArguments("\"".to_owned()));
            self.at = if is_key { At::BehindKey } else { At::Behind };
        }
        ended
    }
}

/// Adds what the escape at the beginning of `text` stands for to `out`. Returns its bytes; `None`: more text is
/// needed. An unknown escape stands for itself, as in Python.
fn escape(text: &str, out: &mut String) -> Option<usize> {
    let kind = text[1..].chars().next()?;
    let digits = match kind {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        '\n' => return Some(2),
        _ => {
            match kind {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                '\\' | '\'' | '"' => out.push(kind),
                _ => out.extend(['\\', kind]),
            }
            return Some(1 + kind.len_utf8());
        }
    };
    let hex: String = text[2..].chars().take(digits).take_while(char::is_ascii_hexdigit).collect();
    if hex.len() < digits && text.len() == 2 + hex.len() {
        return None;
    }
    let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
    match code.and_then(char::from_u32) {
        Some(c) => out.push(c),
        None => out.push_str(&text[..2 + hex.len()]),
    }
    Some(2 + hex.len())
}
