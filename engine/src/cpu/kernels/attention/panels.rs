//! Attention with keys and values as panels of weights.
//!
//! The keys of a tile and its values are packed as panels, once for all queries of the tile that share the KV
//! head: so scores are a linear layer's product, and so are sums of values, and both are the kernels of
//! [`linear`]. Between them stands the softmax.
//!
//! [`linear`]: crate::cpu::kernels::linear

use super::arguments::{Attention, KeptStates};
use super::queries::{Split, split};
use super::row_states::{self, Finish, Join, RowStates};
use super::scratch::Scratch;
use super::softmax::{self, Softmax};
use super::tile::{self, POSITIONS, Tile};
use crate::cpu::kernels::linear::{Form, PANEL, Product, Start};
use crate::cpu::simd::{Isa, LANES};
use domain::Dtype;
use half::bf16;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Numbers of the state of a query.
pub(super) fn state_numbers(head_dim: usize) -> usize {
    head_dim.next_multiple_of(PANEL) + LANES
}

/// Attends.
///
/// # Safety
/// As [`super::attend`], for at most [`super::QUERY_TILE`] queries.
pub(super) unsafe fn attend(
    isa: Isa,
    dtype: Dtype,
    a: &Attention<'_>,
    stretches: Range<usize>,
    kept: Option<KeptStates>,
) {
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
        let [behind, present] = [0, 1].map(|i| a.states((&raw mut (*scratch).states[i]).cast()));
        for (index, stretch) in stretches.enumerate() {
            let states = match kept {
                Some(kept) => a.states(kept.of(index)),
                None if index == 0 => behind,
                None => present,
            };
            states.begin();
            attend_stretch(isa, dtype, a, stretch, queries, scratch, states);
            if kept.is_none() && index > 0 {
                row_states::join(isa, &Join { into: behind, from: present });
            }
        }
        if kept.is_none() {
            row_states::finish(isa, &Finish { attention: a, states: behind });
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
    states: RowStates,
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
            softmax::weigh(isa, &Softmax { attention: a, base, scratch, rounded: form == Form::Bf16, states });
            (product.x, product.x_stride) = match form {
                Form::Bf16 => ((&raw const (*scratch).weights).cast(), POSITIONS * size_of::<bf16>()),
                _ => (scores.cast_const().cast(), POSITIONS * size_of::<f32>()),
            };
            (product.inputs, product.start, product.out_stride) = (POSITIONS, Start::Out, states.stride());
            for panel in 0..states.width / PANEL {
                product.weights = values.cast::<u8>().add(panel * form.panel_bytes(POSITIONS));
                product.out = states.sums(0).add(panel * PANEL);
                form.multiply(isa, &product);
            }
        }
    }
}

/// Returns the form of keys and values.
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
pub(super) unsafe fn join(isa: Isa, a: &Attention<'_>, stretches: usize, kept: KeptStates) {
    // SAFETY: as the caller says.
    unsafe {
        let states = a.states(kept.of(0));
        for stretch in 1..stretches {
            row_states::join(isa, &Join { into: states, from: a.states(kept.of(stretch)) });
        }
        row_states::finish(isa, &Finish { attention: a, states });
    }
}

impl Attention<'_> {
    /// Returns the states of the queries, at this place.
    fn states(&self, first: *mut f32) -> RowStates {
        RowStates { first, count: self.count, width: self.head_dim.next_multiple_of(PANEL) }
    }

    /// Returns the queries, as `form` multiplies them, and the bytes from one to the next; in bf16, what rounding left
    /// out follows.
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

    /// Returns the keys of 64 positions from `base` on; a position's values are `block_tokens` positions further. In
    /// place of positions before `from` and from `to` on, which may not be there, stand the nearest that are.
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
