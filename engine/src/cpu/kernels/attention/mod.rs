//! Paged attention of a tile of queries over one KV head: on AMX, of a cache of bf16, with queries as [`columns`];
//! else with keys and values in [`panels`].
//!
//! Keys come in tiles of 64 absolute positions, whatever the block size. A context is attended to in stretches,
//! which begin at multiples of [`STRETCH`]: a query goes through the tiles of a stretch in rising order and knows
//! nothing when it begins one; what it learns there is joined to what is known after all before, in rising order
//! too. So its bits depend on its own position and the cache alone, and are the same where threads share its
//! stretches ([`attend_stretches`], then [`join`]) and where one goes through all of them ([`attention`]).

#[cfg(target_arch = "x86_64")]
mod columns;
mod known;
mod panels;
mod queries;
mod softmax;
mod tile;

#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Avx512Level;
use crate::cpu::simd::{Isa, LANES};
use domain::{BlockId, Dtype};
use std::ops::Range;
use tile::POSITIONS;

/// Largest size of a head.
pub(in crate::cpu) const HEAD_DIM_MAX: usize = 256;
/// Queries of a tile that every kernel takes.
pub(in crate::cpu) const QUERY_TILE: usize = 64;
/// Positions of a stretch. With fewer of them more threads can share a context, but to join stretches takes a
/// larger part of the time of prompts.
pub(in crate::cpu) const STRETCH: usize = 1024;
const _: () = assert!(STRETCH.is_multiple_of(POSITIONS), "a tile is in one stretch");
/// Of so many queries together the numbers are kept: see [`kept_numbers`].
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
    /// Queries, at most [`queries_max`].
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

/// Where what becomes known of a tile's queries is kept, stretch by stretch.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Kept {
    /// Of the first stretch; at the beginning of a cache line.
    pub(in crate::cpu) first: *mut f32,
    /// Numbers from one stretch's to the next one's, a multiple of 16.
    pub(in crate::cpu) stride: usize,
}

impl Kept {
    /// Of stretch `index`.
    ///
    /// # Safety
    /// There is room for it.
    unsafe fn of(&self, index: usize) -> *mut f32 {
        // SAFETY: as the caller says.
        unsafe { self.first.add(index * self.stride) }
    }
}

/// Queries of a tile, at most, but never fewer than [`QUERY_TILE`]: the more there are, the less often keys and
/// values are read.
pub(in crate::cpu) fn queries_max(isa: Isa, dtype: Dtype, head_dim: usize) -> usize {
    match (isa, dtype) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::queries_max(head_dim),
        _ => QUERY_TILE,
    }
}

/// Numbers that are kept of [`KEPT_QUERIES`] queries after a stretch; of fewer as many.
pub(in crate::cpu) fn kept_numbers(isa: Isa, dtype: Dtype, head_dim: usize) -> usize {
    match (isa, dtype) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => KEPT_QUERIES * columns::known_numbers(head_dim),
        _ => KEPT_QUERIES * panels::known_numbers(head_dim),
    }
}

/// Attends.
///
/// # Safety
/// The blocks are in the pool and cover every position that the queries attend to, and those are written; the
/// queries can be read and their places in `out` written, and nobody else uses those.
pub(in crate::cpu) unsafe fn attention(isa: Isa, dtype: Dtype, a: &Attention<'_>) {
    // SAFETY: as the caller says.
    unsafe { attend(isa, dtype, a, a.stretches(), None) }
}

/// Attends to some stretches alone, and keeps what is known after each. Nothing is written to `out`.
///
/// # Safety
/// As [`attention`], but others may read the queries; and each stretch has room for [`kept_numbers`] of all
/// queries in `kept`, which nobody else uses.
pub(in crate::cpu) unsafe fn attend_stretches(
    isa: Isa,
    dtype: Dtype,
    a: &Attention<'_>,
    stretches: Range<usize>,
    kept: Kept,
) {
    // SAFETY: as the caller says.
    unsafe { attend(isa, dtype, a, stretches, Some(kept)) }
}

/// The result, where all stretches of the queries were attended to and kept: so many, which are used up.
///
/// # Safety
/// As [`attention`], for queries and `out`; and nobody else uses what is kept.
pub(in crate::cpu) unsafe fn join(isa: Isa, dtype: Dtype, a: &Attention<'_>, stretches: usize, kept: Kept) {
    // SAFETY: as the caller says; the value inside `isa` proves that the CPU has the features.
    unsafe {
        match (isa, dtype) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::join(s, a, stretches, kept),
            _ => panels::join(isa, a, stretches, kept),
        }
    }
}

/// Attends to some stretches: keeps what is known after each, or (then they are all) joins them and writes the result.
///
/// # Safety
/// As [`attend_stretches`], or as [`attention`].
unsafe fn attend(isa: Isa, dtype: Dtype, a: &Attention<'_>, stretches: Range<usize>, kept: Option<Kept>) {
    // SAFETY: as the caller says; the value inside `isa` proves that the CPU has the features.
    unsafe {
        match (isa, dtype) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::attend(s, a, stretches, kept),
            _ => panels::attend(isa, dtype, a, stretches, kept),
        }
    }
}

impl Attention<'_> {
    /// Position of the row of query `i`.
    #[inline(always)]
    fn position(&self, i: usize) -> usize {
        self.start + i / self.group
    }

    /// First position that a row at `position` attends to.
    #[inline(always)]
    fn window_start(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// From where to where there are positions of a stretch that any of the queries attends to: the first query is
    /// the earliest, the last one the latest.
    fn seen(&self, stretch: usize) -> (usize, usize) {
        let (begin, end) =
            (self.window_start(self.position(self.first)), self.position(self.first + self.count - 1) + 1);
        (begin.max(stretch * STRETCH), end.min((stretch + 1) * STRETCH))
    }

    /// The stretches that any of the queries attends to.
    fn stretches(&self) -> Range<usize> {
        let (first, last) = (self.position(self.first), self.position(self.first + self.count - 1));
        self.window_start(first) / STRETCH..last / STRETCH + 1
    }

    /// Where query `i` begins, in numbers from the start of rows of `stride` numbers.
    #[inline(always)]
    fn offset(&self, i: usize, stride: usize) -> usize {
        i / self.group * stride + i % self.group * self.head_dim
    }
}
