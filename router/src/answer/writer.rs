//! What a dialect makes of an answer.

use super::delta::{Delta, Finish, Taken, Whole};
use crate::error::ApiError;
use bytes::BytesMut;

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
