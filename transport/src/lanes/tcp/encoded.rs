//! KV that travels encoded: an owner encodes a run before it is sent, and its reader decodes one that has come as
//! a whole, each by way of memory of the connection's own.
//!
//! What an encoding is says [`domain::encoding`], and which pieces travel so the plan of a transfer.

use super::pieces::{Landing, SendRange};
use super::wire::{PIECE_BYTES_MAX, RUN_BYTES_MAX};
use domain::KvPart;
use kv_memory::Memory;
use kv_memory::{LINE, copy_racing_cached, fetch_ahead};
use kv_memory::{decode_parts, encode_parts};

/// Bytes of a region that are copied out of it, to be encoded from a cache.
const COPIED_BYTES: usize = 16 << 10;

/// Returns what the pieces of a memory may be encoded by. `None`: they travel as they are, since it is not made of
/// parts, or those are no smaller encoded, or larger than a piece.
pub(crate) fn part_of(memory: &dyn Memory) -> Option<KvPart> {
    memory.part().filter(|part| part.stored_bytes() < part.bytes() && part.bytes() <= PIECE_BYTES_MAX)
}

/// What an owner encodes with. Its memory is there from the first run that it encodes on.
#[derive(Default)]
pub(super) struct Encoder {
    copied: Vec<u8>,
    encoded: Vec<u8>,
}

impl Encoder {
    /// The pieces of a run, encoded. What their owner writes meanwhile is encoded torn.
    ///
    /// # Safety
    /// Each piece must be readable, and whole parts that [`part_of`] its memory names; together they are no longer
    /// than a run.
    pub(super) unsafe fn encode(&mut self, part: KvPart, pieces: &[SendRange]) -> &[u8] {
        let step = (COPIED_BYTES / part.bytes()).max(1) * part.bytes();
        grow(&mut self.copied, step);
        grow(&mut self.encoded, RUN_BYTES_MAX);
        let cut = |piece: &SendRange| {
            let SendRange { from, len } = *piece;
            (0..len).step_by(step).map(move |at| (from.wrapping_add(at), step.min(len - at)))
        };
        let (mut steps, mut end) = (pieces.iter().flat_map(cut).peekable(), 0);
        while let Some((from, len)) = steps.next() {
            let copied = &mut self.copied[..len];
            // SAFETY: as the caller says; the copy is this value's own.
            unsafe { copy_racing_cached(from, copied.as_mut_ptr(), len) };
            if let Some(&(next, len)) = steps.peek() {
                (0..len).step_by(LINE).for_each(|at| fetch_ahead(next.wrapping_add(at)));
            }
            let begin = end;
            end += part.stored_bytes_of(len);
            encode_parts(part, copied, &mut self.encoded[begin..end]);
        }
        &self.encoded[..end]
    }
}

/// Where the encoded run that arrives over a reader's connection is put together. Its memory is there from the
/// first one on.
#[derive(Default)]
pub(super) struct Arrived(Vec<u8>);

impl Arrived {
    /// The place of a run of so many bytes.
    pub(super) fn run(&mut self, len: usize) -> &mut [u8] {
        grow(&mut self.0, RUN_BYTES_MAX);
        &mut self.0[..len]
    }

    /// Decodes a run that is there as a whole to where its pieces go.
    ///
    /// # Safety
    /// The landings must be writable, and no other thread may access them meanwhile.
    pub(super) unsafe fn decode(&self, part: KvPart, landings: &[Landing]) {
        let mut rest = self.0.as_slice();
        for landing in landings {
            let (encoded, after) = rest.split_at(part.stored_bytes_of(landing.len as usize));
            // SAFETY: as the caller says.
            let parts = unsafe { std::slice::from_raw_parts_mut(landing.host(), landing.len as usize) };
            decode_parts(part, encoded, parts);
            rest = after;
        }
    }
}

fn grow(bytes: &mut Vec<u8>, len: usize) {
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
}
