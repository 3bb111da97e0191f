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
pub(super) struct TextDelta {
    /// Its text; whole characters.
    pub(super) text: String,
    /// Where asked for: the tokens whose text ends here.
    pub(super) logprobs: Vec<LoggedToken>,
    /// A stop string ended the sequence here.
    pub(super) stopped: bool,
}

/// A token and its log probabilities.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LoggedToken {
    /// The token.
    pub(super) token: Token,
    /// Characters of the answer before it.
    pub(super) offset_chars: usize,
    /// Its log probabilities.
    pub(super) logprobs: TokenLogprobs,
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
    pub(super) fn push(&mut self, token: Token, logprobs: Option<TokenLogprobs>) -> TextDelta {
        self.tokens += 1;
        // A stop token ends the sequence and is no part of its text. It cannot be sampled before `min_tokens`.
        if self.params.stop_tokens.contains(&token) {
            return TextDelta::default();
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
    pub(super) fn finish(&mut self) -> TextDelta {
        let text = self.detokenizer.finish();
        let delta = self.show(&text, true);
        self.with_logprobs(delta)
    }

    /// Passes `text` by the stop strings.
    fn show(&mut self, text: &str, last: bool) -> TextDelta {
        self.produced.bytes += text.len();
        self.produced.chars += text.chars().count();
        let mut delta = TextDelta::default();
        if self.tokens < self.params.min_tokens {
            // Nothing may end the sequence yet.
            delta.text.push_str(text);
        } else {
            let watched = self.stops.push(text);
            delta.text = watched.text;
            delta.stopped = watched.stopped.is_some();
        }
        if last && !delta.stopped {
            delta.text.push_str(&self.stops.finish());
        }
        self.shown_bytes += delta.text.len();
        delta
    }

    /// Adds the tokens whose text is shown now. Where a stop string cut a token's text, what is left of it counts.
    fn with_logprobs(&mut self, mut delta: TextDelta) -> TextDelta {
        while let Some((_, range)) = self.held.front()
            && (range.end <= self.shown_bytes || (delta.stopped && range.begin < self.shown_bytes))
        {
            delta.logprobs.extend(self.held.pop_front().map(|(logged, _)| logged));
        }
        delta
    }
}
