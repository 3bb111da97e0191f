//! Attention with keys and values as panels of weights.
//!
//! The keys of a tile and its values are packed as panels, once for all queries of the tile that share the KV
//! head: so scores are a linear layer's product, and so are sums of values, and both are the kernels of
//! [`linear`]. Between them stands the softmax.
//!
//! [`linear`]: crate::cpu::kernels::linear

use super::known::{self, Finish, Join, Known};
use super::queries::{Split, split};
use super::softmax::{self, Softmax};
use super::tile::{self, POSITIONS, Tile};
use super::{Attention, HEAD_DIM_MAX, Kept, QUERY_TILE};
use crate::cpu::kernels::linear::{Form, PANEL, Product, Start};
use crate::cpu::simd::{Isa, LANES};
use domain::Dtype;
use half::bf16;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Numbers that are known of a query.
pub(super) fn known_numbers(head_dim: usize) -> usize {
    head_dim.next_multiple_of(PANEL) + LANES
}

/// What a tile of queries works on; large, so left uninitialised where it is not used.
#[repr(C, align(64))]
pub(super) struct Scratch {
    /// Prepared queries: f32, or two parts in bf16, all queries' first ones first.
    queries: [MaybeUninit<f32>; QUERY_TILE * HEAD_DIM_MAX],
    /// A panel with 64 positions as outputs.
    keys: [MaybeUninit<f32>; HEAD_DIM_MAX * POSITIONS],
    /// Panels with 64 positions as inputs.
    values: [MaybeUninit<f32>; POSITIONS * HEAD_DIM_MAX],
    /// `[queries][64 positions]`.
    pub(super) scores: [MaybeUninit<f32>; QUERY_TILE * POSITIONS],
    /// What becomes of the scores where values are bf16.
    pub(super) weights: [MaybeUninit<bf16>; QUERY_TILE * POSITIONS],
    /// What is known of the queries after all stretches that are behind, and after the one that is not.
    known: [[MaybeUninit<f32>; QUERY_TILE * (HEAD_DIM_MAX + LANES)]; 2],
}

/// Attends.
///
/// # Safety
/// As [`super::attend`], for at most [`QUERY_TILE`] queries.
pub(super) unsafe fn attend(isa: Isa, dtype: Dtype, a: &Attention<'_>, stretches: Range<usize>, kept: Option<Kept>) {
    let form = form(dtype);
    let width = a.head_dim.next_multiple_of(PANEL);
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let scratch = scratch.as_mut_ptr();
    // SAFETY: every part of the scratch has room for the queries of a tile and the largest head.
    unsafe {
        // Of the last panel of values there may be numbers that no head has.
        if width > a.head_dim {
            (&raw mut (*scratch).values).cast::<f32>().write_bytes(0, POSITIONS * width);
        }
        let queries = a.prepare_queries(isa, form, (&raw mut (*scratch).queries).cast());
        let [behind, present] = [0, 1].map(|i| a.known((&raw mut (*scratch).known[i]).cast()));
        for (index, stretch) in stretches.enumerate() {
            let known = match kept {
                Some(kept) => a.known(kept.of(index)),
                None if index == 0 => behind,
                None => present,
            };
            known.begin();
            attend_stretch(isa, dtype, a, stretch, queries, scratch, known);
            if kept.is_none() && index > 0 {
                known::join(isa, &Join { into: behind, from: present });
            }
        }
        if kept.is_none() {
            known::finish(isa, &Finish { attention: a, known: behind });
        }
    }
}

/// Attends to a stretch, with queries as [`Attention::prepare_queries`] has them.
///
/// # Safety
/// As [`attend`]; the scratch has the queries, and zeros where values are that no head has.
unsafe fn attend_stretch(
    isa: Isa,
    dtype: Dtype,
    a: &Attention<'_>,
    stretch: usize,
    (queries, query_bytes): (*const u8, usize),
    scratch: *mut Scratch,
    known: Known,
) {
    let form = form(dtype);
    let (begin, end) = a.seen(stretch);
    // SAFETY: every part of the scratch has room for the queries of a tile and the largest head, and the blocks
    // hold the positions of each tile that are attended to.
    unsafe {
        let (keys, values) = ((&raw mut (*scratch).keys).cast::<f32>(), (&raw mut (*scratch).values).cast::<f32>());
        let scores = (&raw mut (*scratch).scores).cast::<f32>();
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
            softmax::weigh(isa, &Softmax { attention: a, base, scratch, rounded: form == Form::Bf16, known });
            (product.x, product.x_stride) = match form {
                Form::Bf16 => ((&raw const (*scratch).weights).cast(), POSITIONS * size_of::<bf16>()),
                _ => (scores.cast_const().cast(), POSITIONS * size_of::<f32>()),
            };
            (product.inputs, product.start, product.out_stride) = (POSITIONS, Start::Out, known.stride());
            for panel in 0..known.width / PANEL {
                product.weights = values.cast::<u8>().add(panel * form.panel_bytes(POSITIONS));
                product.out = known.sums(0).add(panel * PANEL);
                form.multiply(isa, &product);
            }
        }
    }
}

/// The form of keys and values.
fn form(dtype: Dtype) -> Form {
    match dtype {
        Dtype::Bf16 => Form::Bf16,
        Dtype::F16 | Dtype::F32 => Form::F32,
    }
}

/// The result of what was kept of all stretches.
///
/// # Safety
/// As [`super::join`].
pub(super) unsafe fn join(isa: Isa, a: &Attention<'_>, stretches: usize, kept: Kept) {
    // SAFETY: as the caller says.
    unsafe {
        let known = a.known(kept.of(0));
        for stretch in 1..stretches {
            known::join(isa, &Join { into: known, from: a.known(kept.of(stretch)) });
        }
        known::finish(isa, &Finish { attention: a, known });
    }
}

impl Attention<'_> {
    /// What is known of the queries, at this place.
    fn known(&self, first: *mut f32) -> Known {
        Known { first, count: self.count, width: self.head_dim.next_multiple_of(PANEL) }
    }

    /// The queries, as `form` multiplies them, and the bytes from one to the next; in bf16, what rounding left out
    /// follows.
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
