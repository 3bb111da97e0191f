//! JSON as Python's `json.dumps` writes it, which is what templates and the models trained on them expect: a space
//! after each separator, and keys in the order given.

use serde_json::{Number, Value};
use std::fmt::Write;

/// The options of `json.dumps` that templates use.
#[derive(Debug, Default)]
pub(super) struct Style {
    /// Spaces by which a level is indented; `None`: all on one line.
    pub(super) indent: Option<usize>,
    /// After an item and after a key; `None`: Python's choice.
    pub(super) separators: Option<(String, String)>,
    /// Keys in order.
    pub(super) sort_keys: bool,
    /// Everything beyond ASCII as escapes.
    pub(super) ensure_ascii: bool,
}

/// `value` as JSON.
pub(super) fn dumps(value: &Value, style: &Style) -> String {
    let (item, key) = match &style.separators {
        Some((item, key)) => (item.as_str(), key.as_str()),
        None => (if style.indent.is_some() { "," } else { ", " }, ": "),
    };
    let mut writer = Writer { out: String::new(), style, item, key };
    writer.value(value, 0);
    writer.out
}

struct Writer<'a> {
    out: String,
    style: &'a Style,
    item: &'a str,
    key: &'a str,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Number(number) => self.out += &python_number(number),
            Value::String(text) => self.string(text),
            Value::Array(items) => self.list(('[', ']'), depth, items, |writer, item| writer.value(item, depth + 1)),
            Value::Object(entries) => {
                let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
                if self.style.sort_keys {
                    entries.sort_by_key(|entry| entry.0);
                }
                self.list(('{', '}'), depth, &entries, |writer, (key, value)| {
                    writer.string(key);
                    writer.out += writer.key;
                    writer.value(value, depth + 1);
                });
            }
            Value::Null | Value::Bool(_) => self.out += &value.to_string(),
        }
    }

    fn list<T>(&mut self, (open, close): (char, char), depth: usize, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out += self.item;
            }
            self.line(depth + 1);
            write(self, item);
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out += "\\\"",
                '\\' => self.out += "\\\\",
                '\n' => self.out += "\\n",
                '\r' => self.out += "\\r",
                '\t' => self.out += "\\t",
                '\u{8}' => self.out += "\\b",
                '\u{c}' => self.out += "\\f",
                c if c < ' ' || (self.style.ensure_ascii && c > '~') => self.escape(c),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(self.out, "\\u{unit:04x}").expect("a string takes all that is written");
        }
    }
}

/// Returns a number as Python writes it. Rust changes to an exponent at the same magnitudes; Python's has a sign and
/// two digits at least.
fn python_number(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let text = format!("{float:?}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}
