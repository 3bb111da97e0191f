//! JSON while it streams: where a value ends, fields one after the other, and strings.

use serde::de::IgnoredAny;

/// Finds the end of one JSON value. It looks at brackets and strings only, so that a value with a mistake inside still
/// has an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ValueEnd {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// A character of a number or a word was seen.
    in_word: bool,
}

impl ValueEnd {
    /// Takes more text, the first of which is the value's first character. Returns how many of its bytes are the
    /// value's, and whether it ends there.
    pub(super) fn scan(&mut self, text: &str) -> (usize, bool) {
        for (at, byte) in text.bytes().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.in_string = false;
                        if self.depth == 0 {
                            return (at + 1, true);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' if self.in_word && self.depth == 0 => {
                    return (at, true);
                }
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                _ => self.in_word |= self.depth == 0,
            }
        }
        (text.len(), false)
    }
}

/// Why nothing can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The text may go on so that it can.
    More,
    /// The text is something else.
    Other,
}

/// Reads JSON from the beginning of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    /// Bytes read.
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    /// Begins at the beginning of `text`.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns what is not read yet.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips white space and returns the next byte, which is not read.
    pub(super) fn peek(&mut self) -> Result<u8, Stop> {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\n', '\r', '\t']).len();
        self.rest().bytes().next().ok_or(Stop::More)
    }

    /// Reads white space and `byte`.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Stop> {
        if self.peek()? != byte {
            return Err(Stop::Other);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads white space and `word`.
    pub(super) fn word(&mut self, word: &str) -> Result<(), Stop> {
        self.peek()?;
        match self.rest() {
            rest if rest.starts_with(word) => {
                self.at += word.len();
                Ok(())
            }
            rest if word.starts_with(rest) => Err(Stop::More),
            _ => Err(Stop::Other),
        }
    }

    /// Reads a string.
    pub(super) fn string(&mut self) -> Result<String, Stop> {
        if self.peek()? != b'"' {
            return Err(Stop::Other);
        }
        serde_json::from_str(self.value()?).map_err(|_| Stop::Other)
    }

    /// Reads a value and returns it as it is written.
    pub(super) fn value(&mut self) -> Result<&'a str, Stop> {
        if matches!(self.peek()?, b',' | b':' | b'}' | b']') {
            return Err(Stop::Other);
        }
        let (bytes, ended) = ValueEnd::default().scan(self.rest());
        if !ended {
            return Err(Stop::More);
        }
        let value = &self.rest()[..bytes];
        serde_json::from_str::<IgnoredAny>(value).map_err(|_| Stop::Other)?;
        self.at += bytes;
        Ok(value)
    }
}

/// Returns `text` as a JSON string, without its quotes.
pub(super) fn escaped(text: &str) -> String {
    let quoted = quoted(text);
    quoted[1..quoted.len() - 1].to_owned()
}

/// Returns `text` as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}
