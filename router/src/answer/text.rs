//! Text of one sequence: tokens in; whole characters out, without stop tokens and stop strings unless the client asks
//! for them, and without what follows them.

use super::delta::LoggedToken;
use crate::api::Options;
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
    /// The strings that end the text and are part of it; none: what ends it is no part of it.
    shown_stops: Vec<String>,
    /// Whether tokens that end the text are part of it.
    shows_stop: bool,
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

/// Text that can be shown.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Piece {
    /// Whole characters.
    pub(super) text: String,
    /// Where asked for: the tokens whose text ends here.
    pub(super) logprobs: Vec<LoggedToken>,
    /// The stop string that ended the sequence here, by its place among the request's.
    pub(super) stopped: Option<usize>,
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
    pub(super) fn new(detokenizer: Detokenizer, options: &Options, params: Arc<SamplingParams>) -> Self {
        let shows_stop = options.shows_stop;
        Self {
            detokenizer,
            stops: StopStrings::new(options.stops.clone()),
            shown_stops: if shows_stop { options.stops.clone() } else { Vec::new() },
            shows_stop,
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
    pub(super) fn push(&mut self, token: Token, logprobs: Option<TokenLogprobs>) -> Piece {
        self.tokens += 1;
        // A stop token ends the sequence. It cannot be sampled before `min_tokens`.
        if !self.shows_stop && self.params.stop_tokens.contains(&token) {
            return Piece::default();
        }
        let before = self.produced;
        let text = self.detokenizer.push(token);
        let piece = self.show(&text, false);
        if let Some(logprobs) = logprobs {
            let range = Range { begin: before.bytes, end: self.produced.bytes };
            self.held.push_back((LoggedToken { token, offset_chars: before.chars, logprobs }, range));
        }
        self.with_logprobs(piece)
    }

    /// Returns what was held back, at the end of the sequence.
    pub(super) fn finish(&mut self) -> Piece {
        let text = self.detokenizer.finish();
        let piece = self.show(&text, true);
        self.with_logprobs(piece)
    }

    /// Passes `text` by the stop strings.
    fn show(&mut self, text: &str, last: bool) -> Piece {
        self.produced.bytes += text.len();
        self.produced.chars += text.chars().count();
        let mut piece = Piece::default();
        if self.tokens < self.params.min_tokens {
            // Nothing may end the sequence yet.
            piece.text.push_str(text);
        } else {
            let watched = self.stops.push(text);
            piece.text = watched.text;
            piece.stopped = watched.stopped;
            if let Some(stop) = watched.stopped.and_then(|at| self.shown_stops.get(at)) {
                piece.text.push_str(stop);
            }
        }
        if last && piece.stopped.is_none() {
            piece.text.push_str(&self.stops.finish());
        }
        self.shown_bytes += piece.text.len();
        piece
    }

    /// Adds the tokens whose text is shown now. Where a stop string cut a token's text, what is left of it counts.
    fn with_logprobs(&mut self, mut piece: Piece) -> Piece {
        while let Some((_, range)) = self.held.front()
            && (range.end <= self.shown_bytes || (piece.stopped.is_some() && range.begin < self.shown_bytes))
        {
            piece.logprobs.extend(self.held.pop_front().map(|(logged, _)| logged));
        }
        piece
    }
}
