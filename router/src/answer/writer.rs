//! What a dialect makes of an answer.

use super::text::{Delta, Finish, LoggedToken};
use crate::error::ApiError;
use bytes::BytesMut;

/// What a request took, as clients are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Tokens of its prompts.
    pub(crate) prompt_tokens: usize,
    /// Those of them that a cache had.
    pub(crate) cached_tokens: usize,
    /// Tokens of its answer.
    pub(crate) output_tokens: usize,
}

/// A sequence that is over.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Whole {
    /// Its text.
    pub(crate) text: String,
    /// Where asked for: its tokens.
    pub(crate) logprobs: Vec<LoggedToken>,
    /// Why it ended.
    pub(crate) finish: Finish,
}

/// Writes one answer: as events, in the order of the methods, or whole.
pub(crate) trait Writer: Send + Sync {
    /// Begins the stream: something was computed. `taken` has the tokens of the prompts, and those that a cache had.
    fn begin(&mut self, _taken: Taken, _out: &mut BytesMut) {}

    /// Appends more of a sequence.
    fn delta(&mut self, sequence: usize, delta: &Delta, out: &mut BytesMut);

    /// Appends the end of a sequence.
    fn finish(&mut self, sequence: usize, finish: Finish, out: &mut BytesMut);

    /// Ends the stream regularly.
    fn end(&mut self, taken: Taken, out: &mut BytesMut);

    /// Ends the stream with an error.
    fn error(&mut self, error: &ApiError, out: &mut BytesMut);

    /// Appends what keeps the connection alive while there is nothing to say. Clients take no notice of it.
    fn keep_alive(&self, out: &mut BytesMut) {
        out.extend_from_slice(b": keepalive\n\n");
    }

    /// Returns the whole answer, as JSON.
    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8>;
}
