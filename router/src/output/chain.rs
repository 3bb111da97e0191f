//! The parser of a whole answer: reasoning, then calls in what is left, then white space.

use super::part::{OutputParser, Part, add};

/// Most white space that is held back until it is known what follows it.
const SPACE_BYTES_MAX: usize = 256;

/// Parses reasoning first, and calls in the text that is left. White space between parts of different kinds belongs to
/// the markers between them and is left out.
#[derive(Debug)]
pub(super) struct Chain {
    parsers: Vec<Box<dyn OutputParser>>,
    edges: Edges,
}

impl Chain {
    /// Begins an answer that `parsers` parse, one after the other.
    pub(super) fn new(parsers: Vec<Box<dyn OutputParser>>) -> Self {
        Self { parsers, edges: Edges::default() }
    }

    /// Passes `text` on from parser to parser. `finishes`: it is the end of the sequence.
    fn pass(&mut self, text: &str, finishes: bool, out: &mut Vec<Part>) {
        let mut parts = Vec::new();
        add(&mut parts, Part::Text(text.to_owned()));
        for parser in &mut self.parsers {
            let mut next = Vec::new();
            for part in parts {
                match part {
                    Part::Text(text) => parser.push(&text, &mut next),
                    other => add(&mut next, other),
                }
            }
            if finishes {
                parser.finish(&mut next);
            }
            parts = next;
        }
        for part in parts {
            self.edges.push(part, out);
        }
    }
}

impl OutputParser for Chain {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.pass(text, false, out);
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        self.pass("", true, out);
        self.edges.finish(out);
    }
}

/// Leaves out white space next to a change of the kind of parts, but not that at the ends of an answer.
#[derive(Debug, Default)]
struct Edges {
    kind: Option<Kind>,
    /// White space that the last part ends in; empty where it was too long to hold.
    space: String,
    /// More of the white space in hand is given out: there was too much to hold.
    is_long: bool,
    /// Only white space came since the kind changed.
    is_fresh: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Reasoning,
    Call,
}

impl Edges {
    fn push(&mut self, part: Part, out: &mut Vec<Part>) {
        match part {
            Part::Text(text) => self.text(Kind::Text, &text, out),
            Part::Reasoning(text) => self.text(Kind::Reasoning, &text, out),
            Part::ToolBegin { .. } | Part::ToolArguments(_) | Part::ToolEnd => {
                self.change(Kind::Call);
                add(out, part);
            }
        }
    }

    fn change(&mut self, kind: Kind) {
        if self.kind != Some(kind) {
            // The beginning of an answer that is text is part of the text.
            self.is_fresh = self.kind.is_some() || kind != Kind::Text;
            self.kind = Some(kind);
            self.space.clear();
            self.is_long = false;
        }
    }

    fn text(&mut self, kind: Kind, text: &str, out: &mut Vec<Part>) {
        self.change(kind);
        let text = if self.is_fresh { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.is_fresh = false;
        let body = text.trim_end();
        if !body.is_empty() {
            let space = std::mem::take(&mut self.space);
            self.give(kind, format!("{space}{body}"), out);
            self.is_long = false;
        }
        self.space.push_str(&text[body.len()..]);
        if self.is_long || self.space.len() > SPACE_BYTES_MAX {
            self.is_long = true;
            let space = std::mem::take(&mut self.space);
            self.give(kind, space, out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        if let Some(kind) = self.kind {
            let space = std::mem::take(&mut self.space);
            self.give(kind, space, out);
        }
    }

    fn give(&self, kind: Kind, text: String, out: &mut Vec<Part>) {
        add(out, if kind == Kind::Reasoning { Part::Reasoning(text) } else { Part::Text(text) });
    }
}
