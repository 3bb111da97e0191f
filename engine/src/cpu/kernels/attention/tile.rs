//! Keys and values of 64 positions out of the cache, as two panels of weights: keys as a layer with an output for each
//! position, values as one with an output for each number of a head.

use crate::cpu::kernels::dispatch;
use crate::cpu::kernels::linear::PANEL;
use crate::cpu::simd::{LANES, Number, Simd};
use domain::Dtype;
use half::bf16;

/// Positions of a tile: the outputs of a panel.
pub(super) const POSITIONS: usize = PANEL;
/// Bf16 numbers of a vector of pairs.
const PAIRED: usize = 2 * LANES;

/// A tile to be loaded.
pub(super) struct Tile {
    /// The keys of each position, `head_dim` numbers.
    pub(super) rows: [*const u8; POSITIONS],
    /// Bytes from a position's keys to its values.
    pub(super) to_values: usize,
    /// Numbers per head, even.
    pub(super) head_dim: usize,
    /// Where the panel of keys goes.
    pub(super) keys: *mut f32,
    /// Where the panels of values go, each with `POSITIONS` inputs.
    pub(super) values: *mut f32,
}

/// Loads a tile: in pairs of bf16 out of a cache of bf16, else in f32. Numbers of the last panel of values that no
/// head has are left as they are.
///
/// # Safety
/// Keys and values can be read behind every row; there is room for the panels, which nobody else uses.
pub(super) unsafe fn load(isa: crate::cpu::Isa, dtype: Dtype, tile: &Tile) {
    // SAFETY: as the caller says.
    unsafe {
        match dtype {
            Dtype::Bf16 => load_pairs(isa, tile),
            Dtype::F16 | Dtype::F32 => load_widened(isa, dtype, tile),
        }
    }
}

dispatch! {
    /// See [`load`].
    ///
    /// # Safety
    /// As there.
    fn load_pairs(Tile) = pairs, plain numbers
}

dispatch! {
    /// See [`load`].
    ///
    /// # Safety
    /// As there.
    fn load_widened(Tile) = widened
}

#[inline(always)]
unsafe fn pairs<S: Simd>(s: S, t: &Tile) {
    // SAFETY: `d` and what is loaded from there on is below `head_dim`; the panels have a place for it.
    unsafe {
        for d in (0..t.head_dim).step_by(PAIRED) {
            for (group, rows) in t.rows.chunks_exact(LANES).enumerate() {
                let mut square = [s.splat(0.0); LANES];
                for (vector, row) in square.iter_mut().zip(rows) {
                    *vector = load_bits(s, row.cast::<bf16>().add(d), t.head_dim - d);
                }
                for (i, vector) in s.transpose(square).iter().enumerate() {
                    s.store(t.keys.add((d / 2 + i) * POSITIONS + group * LANES), *vector);
                }
            }
        }
        let values = |row: *const u8| row.add(t.to_values).cast::<bf16>();
        for (pair, rows) in t.rows.chunks_exact(2).enumerate() {
            let (first, second) = (values(rows[0]), values(rows[1]));
            for d in (0..t.head_dim).step_by(LANES) {
                let numbers = t.head_dim - d;
                let zipped = if numbers >= LANES {
                    s.zip_bf16(first.add(d), second.add(d))
                } else {
                    let (mut a, mut b) = ([bf16::ZERO; LANES], [bf16::ZERO; LANES]);
                    a.as_mut_ptr().copy_from_nonoverlapping(first.add(d), numbers);
                    b.as_mut_ptr().copy_from_nonoverlapping(second.add(d), numbers);
                    s.zip_bf16(a.as_ptr(), b.as_ptr())
                };
                let panel = t.values.add(d / PANEL * (POSITIONS / 2) * PANEL);
                s.store(panel.add(pair * PANEL + d % PANEL), zipped);
            }
        }
    }
}

/// 32 numbers as 16 lanes of bits; zeros from number `numbers` on.
#[inline(always)]
unsafe fn load_bits<S: Simd>(s: S, from: *const bf16, numbers: usize) -> S::V {
    // SAFETY: as the caller says, `numbers` numbers can be read.
    unsafe {
        if numbers >= PAIRED {
            return s.load(from.cast());
        }
        let mut bits = [bf16::ZERO; PAIRED];
        bits.as_mut_ptr().copy_from_nonoverlapping(from, numbers);
        s.load(bits.as_ptr().cast())
    }
}

#[inline(always)]
unsafe fn widened<S: Simd, N: Number>(s: S, t: &Tile) {
    // SAFETY: `d` and what is loaded from there on is below `head_dim`; the panels have a place for it.
    unsafe {
        for d in (0..t.head_dim).step_by(LANES) {
            let numbers = LANES.min(t.head_dim - d);
            for (group, rows) in t.rows.chunks_exact(LANES).enumerate() {
                let mut square = [s.splat(0.0); LANES];
                for (vector, row) in square.iter_mut().zip(rows) {
                    *vector = load_some(s, row.cast::<N>().add(d), numbers);
                }
                for (i, vector) in s.transpose(square).iter().enumerate().take(numbers) {
                    s.store(t.keys.add((d + i) * POSITIONS + group * LANES), *vector);
                }
            }
            let panel = t.values.add(d / PANEL * POSITIONS * PANEL);
            for (position, row) in t.rows.iter().enumerate() {
                let values = row.add(t.to_values).cast::<N>().add(d);
                s.store(panel.add(position * PANEL + d % PANEL), load_some(s, values, numbers));
            }
        }
    }
}

/// Up to 16 numbers, then zeros.
#[inline(always)]
unsafe fn load_some<S: Simd, N: Number>(s: S, from: *const N, numbers: usize) -> S::V {
    // SAFETY: as the caller says, `numbers` numbers can be read.
    unsafe { if numbers == LANES { N::load(s, from) } else { s.load_part(from, numbers) } }
}
