//! Paged attention of a tile of queries over one KV head.
//!
//! Keys come in tiles of 16 absolute positions, whatever the block size. Of each tile, keys are widened and transposed
//! once and values widened once, for all queries of the tile that share the KV head. A query goes through its tiles in
//! rising order with an online softmax, so its bits depend on its own position and the cache alone.
//!
//! Source of the online softmax: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).

use super::dispatch;
use crate::cpu::simd::{LANES, Number, Simd};
use domain::BlockId;
use std::mem::MaybeUninit;

/// Largest size of a head.
pub(in crate::cpu) const HEAD_DIM_MAX: usize = 256;
/// Queries of a tile.
pub(in crate::cpu) const QUERY_TILE: usize = 32;
/// Sums that a score is made of, so that one multiplication does not wait for the one before.
const CHAINS: usize = 4;
/// Vectors of an output that are summed together.
const VALUE_VECTORS: usize = 4;

/// Queries `first..first + count` of a span: query `i` is head `i % group` of row `i / group`.
pub(in crate::cpu) struct Attention<'a> {
    /// The span's first row at the first query head of this KV head.
    pub(in crate::cpu) queries: *const f32,
    /// Numbers from one row to the next.
    pub(in crate::cpu) query_stride: usize,
    /// The result, laid out like the queries.
    pub(in crate::cpu) out: *mut f32,
    /// Numbers from one row to the next.
    pub(in crate::cpu) out_stride: usize,
    /// The first query.
    pub(in crate::cpu) first: usize,
    /// Queries, at most [`QUERY_TILE`].
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

dispatch! {
    /// Attends.
    ///
    /// # Safety
    /// The blocks are in the pool and cover every position that the queries attend to, and those are written; the
    /// queries can be read and their places in `out` written, and nobody else uses those.
    fn attention(Attention<'_>) = attend
}

/// What a tile of queries works on; large, so left uninitialised where it is not used.
struct Scratch {
    /// Keys of 16 positions, transposed: `[head_dim][16]`.
    keys: [MaybeUninit<f32>; HEAD_DIM_MAX * LANES],
    /// Values of 16 positions: `[16][head_dim rounded up to 16]`.
    values: [MaybeUninit<f32>; HEAD_DIM_MAX * LANES],
    /// Weighted sums of values: `[queries][head_dim rounded up to 16]`.
    sums: [MaybeUninit<f32>; HEAD_DIM_MAX * QUERY_TILE],
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

    /// Where query `i` begins, in numbers from the start of rows of `stride` numbers.
    #[inline(always)]
    fn offset(&self, i: usize, stride: usize) -> usize {
        i / self.group * stride + i % self.group * self.head_dim
    }

    /// The keys of 16 positions from `base` on; a position's values are `block_tokens` positions further. In place of
    /// positions before `from` and from `to` on, which may not be there, stand the nearest that are.
    ///
    /// # Safety
    /// The positions `from..to` are covered by the blocks; they are some of the 16.
    #[inline(always)]
    unsafe fn keys<N>(&self, base: usize, from: usize, to: usize) -> [*const N; LANES] {
        let mut rows = [std::ptr::null(); LANES];
        let (mut block, mut offset) = (from / self.block_tokens, from % self.block_tokens);
        for position in from..to {
            // SAFETY: the block is in the table and in the pool, as the caller says.
            rows[position - base] = unsafe {
                let block = self.blocks.get_unchecked(block - self.first_block).0 as usize;
                self.pool.add(block * self.record_bytes).cast::<N>().add(offset * self.head_dim)
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

#[inline(always)]
unsafe fn attend<S: Simd, N: Number>(s: S, a: &Attention<'_>) {
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let scratch = scratch.as_mut_ptr();
    // SAFETY: only addresses are taken.
    let (keys, values, sums) = unsafe {
        (
            (&raw mut (*scratch).keys).cast::<f32>(),
            (&raw mut (*scratch).values).cast::<f32>(),
            (&raw mut (*scratch).sums).cast::<f32>(),
        )
    };
    let padded = a.head_dim.next_multiple_of(LANES);
    let mut largest = [f32::NEG_INFINITY; QUERY_TILE];
    let mut total = [0.0f32; QUERY_TILE];
    // SAFETY: `count * padded` numbers are in `sums`.
    unsafe { sums.write_bytes(0, a.count * padded) };

    // Positions that any query of the tile attends to: the first query is the earliest, the last one the latest.
    let begin = a.window_start(a.position(a.first));
    let end = a.position(a.first + a.count - 1) + 1;
    let mut base = begin / LANES * LANES;
    while base < end {
        // SAFETY: these positions are attended to; `padded * 16` numbers are in each scratch.
        unsafe {
            let rows = a.keys::<N>(base, begin.max(base), end.min(base + LANES));
            load_tile(s, a, &rows, keys, values);
        }
        for i in 0..a.count {
            let position = a.position(a.first + i);
            let (from, to) = (a.window_start(position).max(base), (position + 1).min(base + LANES));
            if from >= to {
                continue;
            }
            // SAFETY: the tile is loaded for these positions, and query `i` is one of `count`.
            unsafe {
                let query = a.queries.add(a.offset(a.first + i, a.query_stride));
                let scores = s.mul(score(s, query, keys, a.head_dim), s.splat(a.scale));
                let scores = a.cap.map_or(scores, |cap| s.soft_cap(scores, cap));
                let scores = s.within(scores, from - base, to - base, f32::NEG_INFINITY);
                let before = largest[i];
                let new = s.largest(scores);
                let now = if new > before { new } else { before };
                let weights = s.exp(s.sub(scores, s.splat(now)));
                let shrink = if now == before { 1.0 } else { first_lane(s, s.exp(s.splat(before - now))) };
                largest[i] = now;
                total[i] = total[i] * shrink + s.sum(weights);
                let mut each = [0.0f32; LANES];
                s.store(each.as_mut_ptr(), weights);
                add_values(s, sums.add(i * padded), values, padded, shrink, &each, from - base, to - base);
            }
        }
        base += LANES;
    }
    for (i, total) in total.iter().enumerate().take(a.count) {
        let total = s.splat(*total);
        // SAFETY: query `i` has `head_dim` numbers in `out` and `padded` in `sums`.
        unsafe {
            let (sums, out) = (sums.add(i * padded), a.out.add(a.offset(a.first + i, a.out_stride)));
            let mut d = 0;
            while d + LANES <= a.head_dim {
                s.store(out.add(d), s.div(s.load(sums.add(d)), total));
                d += LANES;
            }
            if d < a.head_dim {
                s.store_part(out.add(d), s.div(s.load(sums.add(d)), total), a.head_dim - d);
            }
        }
    }
}

/// Loads the keys at `rows`, transposed, and the values that belong to them.
///
/// # Safety
/// `rows` are [`Attention::keys`], and the scratch has room for `head_dim`, rounded up to 16, times 16 numbers each.
#[inline(always)]
unsafe fn load_tile<S: Simd, N: Number>(
    s: S,
    a: &Attention<'_>,
    rows: &[*const N; LANES],
    keys: *mut f32,
    values: *mut f32,
) {
    let padded = a.head_dim.next_multiple_of(LANES);
    let to_values = a.block_tokens * a.head_dim;
    let mut d = 0;
    while d < padded {
        let numbers = a.head_dim - d;
        let mut tile = [s.splat(0.0); LANES];
        // SAFETY: a position has `head_dim` keys, and as many values; `d + 16` is at most `padded`.
        unsafe {
            if numbers >= LANES {
                for (j, row) in rows.iter().enumerate() {
                    tile[j] = N::load(s, row.add(d));
                    s.store(values.add(j * padded + d), N::load(s, row.add(d + to_values)));
                }
            } else {
                for (j, row) in rows.iter().enumerate() {
                    tile[j] = s.load_part(row.add(d), numbers);
                    s.store(values.add(j * padded + d), s.load_part(row.add(d + to_values), numbers));
                }
            }
            for (i, column) in s.transpose(tile).iter().enumerate() {
                s.store(keys.add((d + i) * LANES), *column);
            }
        }
        d += LANES;
    }
}

/// Products of a query with the 16 keys. Number `d` of the head goes to chain `d % 4`; chains are added in pairs.
#[inline(always)]
unsafe fn score<S: Simd>(s: S, query: *const f32, keys: *const f32, head_dim: usize) -> S::V {
    let mut chains = [s.splat(0.0); CHAINS];
    let whole = head_dim / CHAINS * CHAINS;
    let mut d = 0;
    // SAFETY: `d` is below `head_dim`.
    unsafe {
        while d < whole {
            for (c, chain) in chains.iter_mut().enumerate() {
                *chain = s.fma(s.splat(query.add(d + c).read()), s.load(keys.add((d + c) * LANES)), *chain);
            }
            d += CHAINS;
        }
        while d < head_dim {
            let c = d % CHAINS;
            chains[c] = s.fma(s.splat(query.add(d).read()), s.load(keys.add(d * LANES)), chains[c]);
            d += 1;
        }
    }
    s.add(s.add(chains[0], chains[1]), s.add(chains[2], chains[3]))
}

/// `sums = sums * shrink + values * weights`, over the positions `from..to` of the tile in order.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn add_values<S: Simd>(
    s: S,
    sums: *mut f32,
    values: *const f32,
    padded: usize,
    shrink: f32,
    weights: &[f32; LANES],
    from: usize,
    to: usize,
) {
    let mut d = 0;
    // SAFETY: `d` plus the width of what is added is at most `padded`.
    unsafe {
        while d + VALUE_VECTORS * LANES <= padded {
            add_columns::<S, VALUE_VECTORS>(s, sums.add(d), values.add(d), padded, shrink, weights, from, to);
            d += VALUE_VECTORS * LANES;
        }
        while d < padded {
            add_columns::<S, 1>(s, sums.add(d), values.add(d), padded, shrink, weights, from, to);
            d += LANES;
        }
    }
}

/// [`add_values`] for `V` vectors.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn add_columns<S: Simd, const V: usize>(
    s: S,
    sums: *mut f32,
    values: *const f32,
    padded: usize,
    shrink: f32,
    weights: &[f32; LANES],
    from: usize,
    to: usize,
) {
    let mut columns = [s.splat(0.0); V];
    // SAFETY: `16 V` numbers of each row are there.
    unsafe {
        for (v, column) in columns.iter_mut().enumerate() {
            *column = s.mul(s.load(sums.add(v * LANES)), s.splat(shrink));
        }
        for (j, weight) in weights.iter().enumerate().take(to).skip(from) {
            let weight = s.splat(*weight);
            for (v, column) in columns.iter_mut().enumerate() {
                *column = s.fma(weight, s.load(values.add(j * padded + v * LANES)), *column);
            }
        }
        for (v, column) in columns.iter().enumerate() {
            s.store(sums.add(v * LANES), *column);
        }
    }
}

/// Lane 0.
#[inline(always)]
fn first_lane<S: Simd>(s: S, v: S::V) -> f32 {
    let mut lanes = [0.0f32; LANES];
    // SAFETY: the array has 16 numbers.
    unsafe { s.store(lanes.as_mut_ptr(), v) };
    lanes[0]
}
