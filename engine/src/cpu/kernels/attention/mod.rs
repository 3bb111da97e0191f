//! Paged attention of a tile of queries over one KV head.
//!
//! Keys come in tiles of 64 absolute positions, whatever the block size. The keys of a tile and its values are packed as
//! panels of weights, once for all queries of the tile that share the KV head: so scores are a linear layer's product, and
//! so are sums of values, and both are the kernels of [`super::linear`]. Between them stands the softmax. A query goes
//! through its tiles in rising order, so its bits depend on its own position and the cache alone. On AMX a cache of bf16 is
//! [`columns`]'s.

#[cfg(target_arch = "x86_64")]
mod columns;
mod queries;
mod softmax;
mod tile;

use super::linear::{Form, PANEL, Product, Start};
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Avx512Level;
use crate::cpu::simd::Isa;
use domain::{BlockId, Dtype};
use half::bf16;
use queries::{Split, split};
use softmax::Softmax;
use std::mem::MaybeUninit;
use tile::{POSITIONS, Tile};

/// Largest size of a head.
pub(in crate::cpu) const HEAD_DIM_MAX: usize = 256;
/// Queries of a tile that every kernel takes.
pub(in crate::cpu) const QUERY_TILE: usize = 64;

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

/// What a tile of queries works on; large, so left uninitialised where it is not used.
#[repr(C, align(64))]
struct Scratch {
    /// Prepared queries: f32, or two parts in bf16, all queries' first ones first.
    queries: [MaybeUninit<f32>; QUERY_TILE * HEAD_DIM_MAX],
    /// A panel with 64 positions as outputs.
    keys: [MaybeUninit<f32>; HEAD_DIM_MAX * POSITIONS],
    /// Panels with 64 positions as inputs.
    values: [MaybeUninit<f32>; POSITIONS * HEAD_DIM_MAX],
    /// `[queries][64 positions]`.
    scores: [MaybeUninit<f32>; QUERY_TILE * POSITIONS],
    /// What becomes of the scores where values are bf16.
    weights: [MaybeUninit<bf16>; QUERY_TILE * POSITIONS],
    /// Weighted sums of values: `[queries][head_dim rounded up to panels]`.
    sums: [MaybeUninit<f32>; QUERY_TILE * HEAD_DIM_MAX],
    /// Of each query: the largest score so far.
    largest: [f32; QUERY_TILE],
    /// Of each query: the sum of its weights so far.
    totals: [f32; QUERY_TILE],
}

/// Queries of a tile, at most, but never fewer than [`QUERY_TILE`]: the more there are, the less often keys and values are read.
pub(in crate::cpu) fn queries_max(isa: Isa, dtype: Dtype, head_dim: usize) -> usize {
    match (isa, dtype) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::queries_max(head_dim),
        _ => QUERY_TILE,
    }
}

/// Attends.
///
/// # Safety
/// The blocks are in the pool and cover every position that the queries attend to, and those are written; the queries can
/// be read and their places in `out` written, and nobody else uses those.
pub(in crate::cpu) unsafe fn attention(isa: Isa, dtype: Dtype, a: &Attention<'_>) {
    // SAFETY: as the caller says; the value inside `isa` proves that the CPU has the features.
    unsafe {
        match (isa, dtype) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::attend(s, a),
            _ => attend(isa, dtype, a),
        }
    }
}

/// Attends, with keys and values in panels.
///
/// # Safety
/// As [`attention`], for at most [`QUERY_TILE`] queries.
unsafe fn attend(isa: Isa, dtype: Dtype, a: &Attention<'_>) {
    let form = match dtype {
        Dtype::Bf16 => Form::Bf16,
        Dtype::F16 | Dtype::F32 => Form::F32,
    };
    let width = a.head_dim.next_multiple_of(PANEL);
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let scratch = scratch.as_mut_ptr();
    // SAFETY: every part of the scratch has room for the queries of a tile and the largest head, and the blocks hold the
    // positions of each tile that are attended to.
    unsafe {
        let (keys, values) = ((&raw mut (*scratch).keys).cast::<f32>(), (&raw mut (*scratch).values).cast::<f32>());
        let (scores, sums) = ((&raw mut (*scratch).scores).cast::<f32>(), (&raw mut (*scratch).sums).cast::<f32>());
        (*scratch).largest = [f32::NEG_INFINITY; QUERY_TILE];
        (*scratch).totals = [0.0; QUERY_TILE];
        sums.write_bytes(0, a.count * width);
        // Of the last panel there may be numbers that no head has.
        if width > a.head_dim {
            values.write_bytes(0, POSITIONS * width);
        }
        let (queries, query_bytes) = a.prepare_queries(isa, form, (&raw mut (*scratch).queries).cast());

        let (begin, end) = a.seen();
        for base in (begin / POSITIONS * POSITIONS..end).step_by(POSITIONS) {
            let rows = a.keys(dtype, base, begin.max(base), end.min(base + POSITIONS));
            let to_values = a.block_tokens * a.head_dim * dtype.bytes();
            tile::load(isa, dtype, &Tile { rows, to_values, head_dim: a.head_dim, keys, values });
            let mut product = Product {
                x: queries,
                x_stride: query_bytes,
                rows: a.count,
                inputs: a.head_dim,
                weights: keys.cast(),
                start: Start::Zero,
                out: scores,
                out_stride: POSITIONS,
            };
            form.multiply(isa, &product);
            if form == Form::Bf16 {
                (product.x, product.start) = (queries.add(a.count * query_bytes), Start::Out);
                form.multiply(isa, &product);
            }
            softmax::weigh(isa, &a.softmax(base, scratch, form, width));
            (product.x, product.x_stride) = match form {
                Form::Bf16 => ((&raw const (*scratch).weights).cast(), POSITIONS * size_of::<bf16>()),
                _ => (scores.cast_const().cast(), POSITIONS * size_of::<f32>()),
            };
            (product.inputs, product.start, product.out_stride) = (POSITIONS, Start::Out, width);
            for panel in 0..width / PANEL {
                product.weights = values.cast::<u8>().add(panel * form.panel_bytes(POSITIONS));
                product.out = sums.add(panel * PANEL);
                form.multiply(isa, &product);
            }
        }
        softmax::finish(isa, &a.softmax(0, scratch, form, width));
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

    /// From where to where there are positions that any of the queries attends to: the first query is the earliest, the last
    /// one the latest.
    fn seen(&self) -> (usize, usize) {
        (self.window_start(self.position(self.first)), self.position(self.first + self.count - 1) + 1)
    }

    /// Where query `i` begins, in numbers from the start of rows of `stride` numbers.
    #[inline(always)]
    fn offset(&self, i: usize, stride: usize) -> usize {
        i / self.group * stride + i % self.group * self.head_dim
    }

    /// The queries, as `form` multiplies them, and the bytes from one to the next; in bf16, what rounding left out follows.
    ///
    /// # Safety
    /// The queries can be read, and `to` has room for them.
    unsafe fn prepare_queries(&self, isa: Isa, form: Form, to: *mut u8) -> (*const u8, usize) {
        let prepared_bytes = form.prepared_bytes(self.head_dim);
        let bytes = if prepared_bytes > 0 { prepared_bytes } else { self.head_dim * size_of::<f32>() };
        for i in 0..self.count {
            // SAFETY: as the caller says.
            unsafe {
                let x = self.queries.add(self.offset(self.first + i, self.query_stride));
                if prepared_bytes > 0 {
                    let (rounded, rest) = (to.add(i * bytes).cast(), to.add((self.count + i) * bytes).cast());
                    let padded = bytes / size_of::<bf16>();
                    split(isa, &Split { x, count: self.head_dim, scale: 1.0, padded, rounded, rest });
                } else {
                    to.add(i * bytes).copy_from_nonoverlapping(x.cast(), bytes);
                }
            }
        }
        (to, bytes)
    }

    fn softmax(&self, base: usize, scratch: *mut Scratch, form: Form, width: usize) -> Softmax<'_> {
        Softmax { attention: self, base, scratch, rounded: form == Form::Bf16, width }
    }

    /// The keys of 64 positions from `base` on; a position's values are `block_tokens` positions further. In place of
    /// positions before `from` and from `to` on, which may not be there, stand the nearest that are.
    ///
    /// # Safety
    /// The positions `from..to` are covered by the blocks; they are some of the 64.
    unsafe fn keys(&self, dtype: Dtype, base: usize, from: usize, to: usize) -> [*const u8; POSITIONS] {
        let mut rows = [std::ptr::null(); POSITIONS];
        let bytes = self.head_dim * dtype.bytes();
        let (mut block, mut offset) = (from / self.block_tokens, from % self.block_tokens);
        for position in from..to {
            // SAFETY: the block is in the table and in the pool, as the caller says.
            rows[position - base] = unsafe {
                let block = self.blocks.get_unchecked(block - self.first_block).0 as usize;
                self.pool.add(block * self.record_bytes + offset * bytes)
            };
            offset += 1;
            if offset == self.block_tokens {
                (block, offset) = (block + 1, 0);
            }
        }
        let (first, last) = (rows[from - base], rows[to - 1 - base]);
        rows[..from - base].fill(first);
        rows[to - base..].fill(last);
        rows
    }
}
