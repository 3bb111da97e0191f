//! Text of one sequence: tokens in; whole characters out, without stop tokens, stop strings or what follows them.

use domain::plan::TokenLogprobs;
use domain::{SamplingParams, Token};
use engine::text::{Detokenizer, StopStrings};
use std::collections::VecDeque;
use std::sync::Arc;

/// Turns the tokens of a sequence into what its client sees.
#[derive(Debug)]
pub(super) struct SequenceText {
    detokenizer: Detokenizer,
    stops: StopStrings,
    params: Arc<SamplingParams>,
    /// Tokens taken, stop tokens included.
    tokens: u32,
    /// Text that came out of the detokenizer.
    produced: Extent,
    /// Bytes of it that were given out.
    shown_bytes: usize,
    /// Tokens with log probabilities whose text is not given out yet.
    held: VecDeque<(LoggedToken, Range)>,
}

/// Part of an answer that can be shown.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Delta {
    /// Its text; whole characters.
    pub(crate) text: String,
    /// Where asked for: the tokens whose text ends here.
    pub(crate) logprobs: Vec<LoggedToken>,
    /// The stop string that ended the sequence here, by its place among the request's.
    pub(super) stopped: Option<usize>,
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

/// A length of text.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Extent {
    bytes: usize,
    chars: usize,
}

/// Bytes of the answer that a token makes. Empty while its character is not complete.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range {
    begin: usize,
    end: usize,
}

impl SequenceText {
    /// Begins the text of a sequence whose tokens `detokenizer` turns into text.
    pub(super) fn new(detokenizer: Detokenizer, stops: Vec<String>, params: Arc<SamplingParams>) -> Self {
        Self {
            detokenizer,
            stops: StopStrings::new(stops),
            params,
            tokens: 0,
            produced: Extent::default(),
            shown_bytes: 0,
            held: VecDeque::new(),
        }
    }

    /// Returns the number of tokens taken so far.
    pub(super) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Takes the next token.
    pub(super) fn push(&mut self, token: Token, logprobs: Option<TokenLogprobs>) -> Delta {
        self.tokens += 1;
        // A stop token ends the sequence and is no part of its text. It cannot be sampled before `min_tokens`.
        if self.params.stop_tokens.contains(&token) {
            return Delta::default();
        }
        let before = self.produced;
        let text = self.detokenizer.push(token);
        let delta = self.show(&text, false);
        if let Some(logprobs) = logprobs {
            let range = Range { begin: before.bytes, end: self.produced.bytes };
            self.held.push_back((LoggedToken { token, offset_chars: before.chars, logprobs }, range));
        }
        self.with_logprobs(delta)
    }

    /// Returns what was held back, at the end of the sequence.
    pub(super) fn finish(&mut self) -> Delta {
        let text = self.detokenizer.finish();
        let delta = self.show(&text, true);
        self.with_logprobs(delta)
    }

    /// Passes `text` by the stop strings.
    fn show(&mut self, text: &str, last: bool) -> Delta {
        self.produced.bytes += text.len();
        self.produced.chars += text.chars().count();
        let mut delta = Delta::default();
        if self.tokens < self.params.min_tokens {
            // Nothing may end the sequence yet.
            delta.text.push_str(text);
        } else {
            let watched = self.stops.push(text);
            delta.text = watched.text;
            delta.stopped = watched.stopped;
        }
        if last && delta.stopped.is_none() {
            delta.text.push_str(&self.stops.finish());
        }
        self.shown_bytes += delta.text.len();
        delta
    }

    /// Adds the tokens whose text is shown now. Where a stop string cut a token's text, what is left of it counts.
    fn with_logprobs(&mut self, mut delta: Delta) -> Delta {
        while let Some((_, range)) = self.held.front()
            && (range.end <= self.shown_bytes || (delta.stopped.is_some() && range.begin < self.shown_bytes))
        {
            delta.logprobs.extend(self.held.pop_front().map(|(logged, _)| logged));
        }
        delta
    }
}
