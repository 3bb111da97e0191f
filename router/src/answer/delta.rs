//! What an answer is made of.

use crate::output::{Part, add};
use domain::Token;
use domain::plan::TokenLogprobs;
use std::time::Duration;

/// More of a sequence.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Delta {
    /// Text, reasoning and calls, in their order.
    pub(crate) parts: Vec<Part>,
    /// Where asked for: the tokens whose text ends here.
    pub(crate) logprobs: Vec<LoggedToken>,
    /// Where asked for: the tokens that came. Their text may be part of a later delta.
    pub(crate) tokens: Vec<Token>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    /// The model ended it.
    Stop,
    /// The stop string with this place among the request's came.
    StopString(usize),
    /// It has as many tokens as it may have.
    Length,
}

/// A token and its log probabilities.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LoggedToken {
    /// The token.
    pub(crate) token: Token,
    /// Characters of the answer before it.
    pub(crate) offset_chars: usize,
    /// Its log probabilities.
    pub(crate) logprobs: TokenLogprobs,
}

/// A sequence that is over.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Whole {
    /// Text, reasoning and calls, in their order. No neighbours are of the same kind.
    pub(crate) parts: Vec<Part>,
    /// Where asked for: its tokens, with log probabilities.
    pub(crate) logprobs: Vec<LoggedToken>,
    /// Where asked for: its tokens, with the one that ended it.
    pub(crate) tokens: Vec<Token>,
    /// Why it ended.
    pub(crate) finish: Finish,
}

/// What a request took, as clients are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    /// Tokens of its prompts.
    pub(crate) prompt_tokens: usize,
    /// Those of them that a cache had.
    pub(crate) cached_tokens: usize,
    /// Tokens of its answer.
    pub(crate) output_tokens: usize,
    /// Those of them that are reasoning, its markers and the white space around it included.
    pub(crate) reasoning_tokens: usize,
    /// Time from its arrival to its first token.
    pub(crate) first_after: Duration,
    /// Time since its arrival.
    pub(crate) after: Duration,
}

impl Delta {
    /// Returns whether it says nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.logprobs.is_empty() && self.tokens.is_empty()
    }

    /// Returns all of its text.
    pub(crate) fn text(&self) -> String {
        text(&self.parts)
    }
}

impl Whole {
    /// Makes one of which nothing came yet.
    pub(super) fn new() -> Self {
        Self { parts: Vec::new(), logprobs: Vec::new(), tokens: Vec::new(), finish: Finish::Stop }
    }

    /// Adds more.
    pub(super) fn extend(&mut self, delta: &Delta) {
        delta.parts.iter().for_each(|part| add(&mut self.parts, part.clone()));
        self.logprobs.extend_from_slice(&delta.logprobs);
        self.tokens.extend_from_slice(&delta.tokens);
    }

    /// Returns all of its text.
    pub(crate) fn text(&self) -> String {
        text(&self.parts)
    }

    /// Returns all of its reasoning.
    pub(crate) fn reasoning(&self) -> String {
        let reasoning = |part: &Part| match part {
            Part::Reasoning(text) => Some(text.clone()),
            Part::Text(_) | Part::ToolBegin { .. } | Part::ToolArguments(_) | Part::ToolEnd => None,
        };
        self.parts.iter().filter_map(reasoning).collect()
    }

    /// Returns its calls: the name of a tool and the arguments.
    pub(crate) fn calls(&self) -> Vec<(&str, String)> {
        let mut calls: Vec<(&str, String)> = Vec::new();
        for part in &self.parts {
            match part {
                Part::ToolBegin { name } => calls.push((name, String::new())),
                Part::ToolArguments(more) => calls.last_mut().expect("a call has begun").1.push_str(more),
                Part::Text(_) | Part::Reasoning(_) | Part::ToolEnd => {}
            }
        }
        calls
    }
}

fn text(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Reasoning(_) | Part::ToolBegin { .. } | Part::ToolArguments(_) | Part::ToolEnd => None,
    };
    parts.iter().filter_map(text).collect()
}
