//! One sequence: tokens in, deltas out.

use super::delta::{Delta, Finish};
use super::text::{Piece, SequenceText};
use crate::output::{OutputParser, Part};
use domain::Token;
use domain::plan::TokenLogprobs;

/// A sequence whose tokens come in.
#[derive(Debug)]
pub(super) struct Sequence {
    text: SequenceText,
    /// What takes its text apart; `None`: all is text.
    parser: Option<Box<dyn OutputParser>>,
    /// The end of its first call ends it.
    one_call: bool,
    /// Whether the call that began last has arguments.
    has_arguments: bool,
    reasoning: Reasoning,
    /// The ids of its tokens are told.
    tells_tokens: bool,
    /// Sum of the log probabilities of all tokens, where they are asked for.
    logprobs_sum: f64,
    /// Nothing of what still comes is shown.
    pub(super) is_over: bool,
}

/// How many of a sequence's tokens are reasoning: those before its first text or call, if there is reasoning at all.
#[derive(Clone, Copy, Debug, Default)]
struct Reasoning {
    tokens: usize,
    is_there: bool,
    is_over: bool,
}

impl Sequence {
    /// Begins a sequence, whose text `parser` takes apart. `one_call`: it ends with its first call.
    pub(super) fn new(
        text: SequenceText,
        parser: Option<Box<dyn OutputParser>>,
        one_call: bool,
        tells_tokens: bool,
    ) -> Self {
        let (has_arguments, reasoning, logprobs_sum, is_over) = (false, Reasoning::default(), 0.0, false);
        Self { text, parser, one_call, has_arguments, reasoning, tells_tokens, logprobs_sum, is_over }
    }

    /// Returns the number of tokens taken so far.
    pub(super) fn tokens(&self) -> usize {
        self.text.tokens() as usize
    }

    /// Returns how many of them are reasoning.
    pub(super) fn reasoning_tokens(&self) -> usize {
        if self.reasoning.is_there { self.reasoning.tokens } else { 0 }
    }

    /// Returns the mean log probability of its tokens, with the one that ended it.
    pub(super) fn mean_logprob(&self) -> f64 {
        self.logprobs_sum / self.tokens().max(1) as f64
    }

    /// Takes the next token. Returns what can be shown now, and why the sequence is over, if it is by this token.
    pub(super) fn push(&mut self, token: Token, logprobs: Option<TokenLogprobs>) -> (Delta, Option<Finish>) {
        self.logprobs_sum += logprobs.as_ref().map_or(0.0, |logprobs| f64::from(logprobs.logprob));
        let piece = self.text.push(token, logprobs);
        let stop = piece.stopped.map(Finish::StopString);
        let (mut delta, is_called) = self.parse(piece, stop.is_some());
        if self.tells_tokens {
            delta.tokens.push(token);
        }
        let end = stop.or(is_called.then_some(Finish::Stop));
        self.is_over = end.is_some();
        (delta, end)
    }

    /// Takes the end of the sequence, of which the worker says `finish`. Returns what was held back, and why it ended.
    pub(super) fn finish(&mut self, finish: Finish) -> (Delta, Finish) {
        let piece = self.text.finish();
        let stop = piece.stopped.map(Finish::StopString);
        self.is_over = true;
        let (delta, is_called) = self.parse(piece, true);
        (delta, stop.unwrap_or(if is_called { Finish::Stop } else { finish }))
    }

    /// Takes a piece of text apart. Returns whether the one call that there may be is complete, too.
    fn parse(&mut self, Piece { text, logprobs, .. }: Piece, is_last: bool) -> (Delta, bool) {
        let Some(parser) = &mut self.parser else {
            let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] };
            return (Delta { parts, logprobs, tokens: Vec::new() }, false);
        };
        let mut said = Vec::new();
        parser.push(&text, &mut said);
        if is_last {
            parser.finish(&mut said);
        }
        self.reasoning.take(&said);
        let tokens = Vec::new();
        let mut parts = Vec::with_capacity(said.len());
        for part in said {
            match &part {
                Part::ToolBegin { .. } => self.has_arguments = false,
                Part::ToolArguments(_) => self.has_arguments = true,
                // What has no arguments has none by name.
                Part::ToolEnd if !self.has_arguments => parts.push(Part::ToolArguments("{}".to_owned())),
                Part::ToolEnd | Part::Text(_) | Part::Reasoning(_) => {}
            }
            let is_end = part == Part::ToolEnd;
            parts.push(part);
            if is_end && self.one_call {
                return (Delta { parts, logprobs, tokens }, true);
            }
        }
        (Delta { parts, logprobs, tokens }, false)
    }
}

impl Reasoning {
    /// Counts a token, which made `parts`.
    fn take(&mut self, parts: &[Part]) {
        self.is_there |= parts.iter().any(|part| matches!(part, Part::Reasoning(_)));
        self.is_over |= parts.iter().any(|part| !matches!(part, Part::Reasoning(_)));
        if !self.is_over {
            self.tokens += 1;
        }
    }
}
