//! Rules of a grammar that is being written, in the language of the workers' compiler: Lark's, with JSON schemas and
//! special tokens in it.

use engine::text::Tokenizer;
use serde_json::{Map, Value, json};

/// White space between the parts of a JSON text: a space, or a line break with an indentation. Without a bound, a model
/// may write nothing else.
const JSON_SPACE: &str = " |\n {0,32}";
/// White space between parts of an answer.
const SPACE: &str = "/[ \\n]{1,4}/";

/// Writes rules. What its methods return are expressions that stand for what they describe.
pub(crate) struct Rules<'a> {
    tokenizer: &'a Tokenizer,
    text: String,
    count: usize,
}

/// How close a JSON text has to keep to its schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeping {
    /// To all of it: keywords that cannot be kept are errors.
    All,
    /// As far as is known how.
    WhatIsKnown,
}

impl<'a> Rules<'a> {
    /// Begins without rules.
    pub(crate) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, text: String::new(), count: 0 }
    }

    /// Adds a rule.
    pub(crate) fn rule(&mut self, body: &str) -> String {
        self.add("r", "", body)
    }

    fn add(&mut self, kind: &str, attributes: &str, body: &str) -> String {
        self.count += 1;
        let name = format!("{kind}{}", self.count);
        self.text.push_str(&format!("{name}{attributes}: {body}\n"));
        name
    }

    /// Returns these characters.
    pub(crate) fn literal(text: &str) -> String {
        Value::from(text).to_string()
    }

    /// Returns a marker: a special token where the model has one of this name, and its characters otherwise.
    pub(crate) fn marker(&self, name: &str) -> String {
        self.special(name).unwrap_or_else(|| Self::literal(name))
    }

    /// Returns whether a marker is a special token of the model.
    pub(crate) fn has_special(&self, name: &str) -> bool {
        self.special(name).is_some()
    }

    fn special(&self, name: &str) -> Option<String> {
        let token = self.tokenizer.token_id(name).filter(|&token| self.tokenizer.is_special(token))?;
        Some(format!("<[{token}]>"))
    }

    /// Returns any text.
    pub(crate) fn any(&mut self) -> String {
        self.add("T", "", "/(?s:.*)/")
    }

    /// Returns any text up to the first marker `end`, and the marker.
    pub(crate) fn until(&mut self, end: &str) -> String {
        match self.special(end) {
            Some(end) => {
                let any = self.any();
                format!("{any} {end}")
            }
            None => self.add("r", &format!("[suffix={}]", Self::literal(end)), "/(?s:.*)/"),
        }
    }

    /// Returns any text without a marker.
    pub(crate) fn without(&mut self, marker: &str) -> String {
        if self.has_special(marker) {
            return self.any();
        }
        self.add("T", "", &format!("/(?s:.*)/ & ~(/(?s:.*)/ {} /(?s:.*)/)", Self::literal(marker)))
    }

    /// Returns white space, or nothing.
    pub(crate) fn space(&mut self) -> String {
        format!("{}?", self.add("T", "", SPACE))
    }

    /// Returns a text that a regular expression describes as a whole.
    pub(crate) fn regex(&mut self, regex: &str) -> String {
        let mut escaped = String::with_capacity(regex.len());
        let mut is_escaped = false;
        for c in regex.chars() {
            match c {
                '/' if !is_escaped => escaped.push_str("\\/"),
                '\n' if is_escaped => escaped.push('n'),
                '\n' => escaped.push_str("\\n"),
                c => escaped.push(c),
            }
            is_escaped = c == '\\' && !is_escaped;
        }
        self.add("T", "", &format!("/{escaped}/"))
    }

    /// Returns one of these texts.
    pub(crate) fn choice(&mut self, texts: &[String]) -> String {
        let texts: Vec<String> = texts.iter().map(|text| Self::literal(text)).collect();
        self.add("T", "", &texts.join(" | "))
    }

    /// Returns a text of another grammar of the same language.
    pub(crate) fn grammar(&mut self, grammar: &str) -> String {
        self.rule(&format!("%lark {{\n{grammar}\n}}"))
    }

    /// Returns a JSON text of `schema`, which is an object or a truth value.
    pub(crate) fn json(&mut self, schema: &Value, keeping: Keeping) -> String {
        let mut schema = match schema {
            Value::Object(schema) => schema.clone(),
            Value::Bool(false) => Map::from_iter([("not".to_owned(), json!({}))]),
            _ => Map::new(),
        };
        let lenient = keeping == Keeping::WhatIsKnown;
        let how = json!({ "whitespace_pattern": JSON_SPACE, "lenient": lenient, "coerce_one_of": lenient });
        schema.insert("x-guidance".to_owned(), how);
        self.rule(&format!("%json {}", Value::Object(schema)))
    }

    /// Returns the grammar, which begins with `start`.
    pub(crate) fn finish(self, start: &str) -> String {
        format!("start: {start}\n{}", self.text)
    }
}
