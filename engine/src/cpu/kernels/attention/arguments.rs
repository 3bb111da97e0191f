//! What a call attends with, to and into: a tile of queries of one KV head, and the blocks that hold its context.

use super::tile::POSITIONS;
use crate::cpu::simd::LANES;
use domain::BlockId;
use std::ops::Range;

/// Largest size of a head.
pub(in crate::cpu) const HEAD_DIM_MAX: usize = 256;
/// Queries of a tile that every kernel takes.
pub(in crate::cpu) const QUERY_TILE: usize = 64;
/// Positions of a stretch. With fewer of them more threads can share a context, but to join stretches takes a
/// larger part of the time of prompts.
pub(in crate::cpu) const STRETCH: usize = 1024;
const _: () = assert!(STRETCH.is_multiple_of(POSITIONS), "a tile is in one stretch");
/// The states of so many queries are kept together: see [`super::kept_numbers`].
pub(in crate::cpu) const KEPT_QUERIES: usize = LANES;

/// Queries `first..first + count` of a span: query `i` is head `i % group` of row `i / group`.
pub(in crate::cpu) struct Attention<'a> {
    /// The span's first row at the first query head of this KV head.
    pub(in crate::cpu) queries: *const f32,
    /// Numbers from one row to the next.
    pub(in crate::cpu) query_stride: usize,
    /// The result, laid out like the queries; may be those.
    pub(in crate::cpu) out: *mut f32,
    /// Numbers from one row to the next.
    pub(in crate::cpu) out_stride: usize,
    /// The first query.
    pub(in crate::cpu) first: usize,
    /// Queries, at most [`super::queries_max`].
    pub(in crate::cpu) count: usize,
    /// Query heads per KV head.
    pub(in crate::cpu) group: usize,
    /// Numbers per head, at most [`HEAD_DIM_MAX`].
    pub(in crate::cpu) head_dim: usize,
    /// Absolute position of the span's first row.
    pub(in crate::cpu) start: usize,
    /// Position `p` attends to `p - window + 1 ..= p`; `usize::MAX`: to all.
    pub(in crate::cpu) window: usize,
    /// Multiplies the scores.
    pub(in crate::cpu) scale: f32,
    /// Soft cap of the scores.
    pub(in crate::cpu) cap: Option<f32>,
    /// The pool, at this layer's and this head's keys in block 0.
    pub(in crate::cpu) pool: *const u8,
    /// Bytes from one block to the next.
    pub(in crate::cpu) record_bytes: usize,
    /// Positions of a block.
    pub(in crate::cpu) block_tokens: usize,
    /// The sequence's blocks.
    pub(in crate::cpu) blocks: &'a [BlockId],
    /// Which block of the sequence `blocks[0]` is.
    pub(in crate::cpu) first_block: usize,
}

/// Memory for the softmax states of a tile's queries after each stretch.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct KeptStates {
    /// Of the first stretch; at the beginning of a cache line.
    pub(in crate::cpu) first: *mut f32,
    /// Numbers from one stretch's to the next one's, a multiple of 16.
    pub(in crate::cpu) stride: usize,
}

impl KeptStates {
    /// Of stretch `index`.
    ///
    /// # Safety
    /// There is room for it.
    pub(super) unsafe fn of(&self, index: usize) -> *mut f32 {
        // SAFETY: as the caller says.
        unsafe { self.first.add(index * self.stride) }
    }
}

impl Attention<'_> {
    /// Position of the row of query `i`.
    #[inline(always)]
    pub(super) fn position(&self, i: usize) -> usize {
        self.start + i / self.group
    }

    /// First position that a row at `position` attends to.
    #[inline(always)]
    pub(super) fn window_start(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// From where to where there are positions of a stretch that any of the queries attends to: the first query is
    /// the earliest, the last one the latest.
    pub(super) fn seen(&self, stretch: usize) -> (usize, usize) {
        let (begin, end) =
            (self.window_start(self.position(self.first)), self.position(self.first + self.count - 1) + 1);
        (begin.max(stretch * STRETCH), end.min((stretch + 1) * STRETCH))
    }

    /// Returns the stretches that any of the queries attends to.
    pub(super) fn stretches(&self) -> Range<usize> {
        let (first, last) = (self.position(self.first), self.position(self.first + self.count - 1));
        self.window_start(first) / STRETCH..last / STRETCH + 1
    }

    /// Where query `i` begins, in numbers from the start of rows of `stride` numbers.
    #[inline(always)]
    pub(super) fn offset(&self, i: usize, stride: usize) -> usize {
        i / self.group * stride + i % self.group * self.head_dim
    }
}
