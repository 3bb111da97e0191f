//! Weights in bf16, multiplied with activations that are rounded to bf16; sums are f32. [`super::pair_panel`] says how
//! a panel lies. Instruction sets without dot products of pairs widen both halves and do one multiply-add after the
//! other.

use super::pair_panel::{INPUTS, padded};
use super::product::{PANEL, Preparation, Product};
use crate::cpu::kernels::dispatch;
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Avx512Level;
use crate::cpu::simd::{Isa, LANES, Simd};
use half::bf16;

/// Pairs of inputs that all rows go through before any goes on: as many as keep a panel's part in the L1 cache beside
/// rows. The partial sums wait in the output meanwhile, unrounded, since they are f32 either way.
const PAIRS_BLOCK: usize = 128;

/// See [`super::Form::pack`].
///
/// # Safety
/// As there.
pub(super) unsafe fn pack(rows: &[&[u8]], inputs: usize, to: *mut bf16) {
    // A few inputs at a time, so that what is written stays in the L1 cache until its lines are whole.
    for first in (0..inputs).step_by(INPUTS) {
        for (output, row) in rows.iter().enumerate() {
            let numbers = row[first * size_of::<bf16>()..].chunks_exact(size_of::<bf16>()).take(INPUTS);
            for (input, number) in (first..).zip(numbers) {
                let number = number.as_ptr().cast::<bf16>();
                // SAFETY: a chunk is one number; output and input are inside the panel.
                unsafe { to.add(place(input, output)).write(number.read_unaligned()) };
            }
        }
    }
}

/// See [`super::Form::widen`].
///
/// # Safety
/// As there.
pub(super) unsafe fn widen(panel: *const bf16, inputs: usize, output: usize, out: *mut f32) {
    for input in 0..inputs {
        // SAFETY: output and input are inside the panel, and `out` has `inputs` numbers.
        unsafe { out.add(input).write(panel.add(place(input, output)).read().to_f32()) };
    }
}

/// Returns where a panel has this number.
fn place(input: usize, output: usize) -> usize {
    (input / 2 * PANEL + output) * 2 + input % 2
}

dispatch! {
    /// See [`super::Form::prepare`].
    ///
    /// # Safety
    /// As there.
    fn prepare(Preparation) = round, plain numbers
}

#[inline(always)]
unsafe fn round<S: Simd>(s: S, row: &Preparation) {
    let to = row.to.cast::<bf16>();
    let whole = row.inputs / LANES * LANES;
    let rest = row.inputs % LANES;
    // SAFETY: the row has `inputs` numbers, and the prepared row those and their padding.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            s.store_bf16(to.add(i), s.load(row.x.add(i)));
        }
        if rest > 0 {
            s.store_bf16(to.add(whole), s.load_part(row.x.add(whole), rest));
        }
        let end = row.inputs.next_multiple_of(LANES);
        to.add(end).write_bytes(0, padded(row.inputs) - end);
    }
}

/// See [`super::Form::multiply`].
///
/// # Safety
/// As there.
pub(super) unsafe fn multiply(isa: Isa, product: &Product) {
    // SAFETY: as the caller says; the value inside `isa` proves that the CPU has the features.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(s) if s.has(Avx512Level::Amx) => match product.rows {
                1 => super::amx_row::multiply(product),
                _ => super::amx::multiply(product),
            },
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(s) if s.has(Avx512Level::Bf16) => dot::multiply(product),
            _ => multiply_widened(isa, product),
        }
    }
}

dispatch! {
    /// See [`super::Form::multiply`].
    ///
    /// # Safety
    /// As there.
    fn multiply_widened(Product) = panel, plain numbers
}

#[inline(always)]
unsafe fn panel<S: Simd>(s: S, p: &Product) {
    let pairs = padded(p.inputs) / 2;
    for from in (0..pairs).step_by(PAIRS_BLOCK) {
        let to = pairs.min(from + PAIRS_BLOCK);
        let mut row = 0;
        while row < p.rows {
            let rows = (p.rows - row).min(S::TILE_ROWS);
            // SAFETY: the rows `row..row + rows` exist.
            unsafe {
                match rows {
                    1 => wide_tile::<S, 1>(s, p, row, from, to),
                    2 => wide_tile::<S, 2>(s, p, row, from, to),
                    3 => wide_tile::<S, 3>(s, p, row, from, to),
                    4 => wide_tile::<S, 4>(s, p, row, from, to),
                    5 => wide_tile::<S, 5>(s, p, row, from, to),
                    _ => wide_tile::<S, 6>(s, p, row, from, to),
                }
            }
            row += rows;
        }
    }
}

/// The whole width of the panel, for `R` rows from `row` on and the pairs `from..to`.
#[inline(always)]
unsafe fn wide_tile<S: Simd, const R: usize>(s: S, p: &Product, row: usize, from: usize, to: usize) {
    if R > S::TILE_ROWS {
        return;
    }
    // SAFETY: as the caller says; a row has 64 outputs.
    unsafe {
        if S::TILE_WIDE {
            tile::<S, R, 4>(s, p, row, 0, from, to);
        } else {
            tile::<S, R, 2>(s, p, row, 0, from, to);
            tile::<S, R, 2>(s, p, row, 2 * LANES, from, to);
        }
    }
}

/// `R` rows and `V` vectors of outputs, in registers. Of a pair, the second input goes first, as in the processors' own
/// dot products.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const V: usize>(
    s: S,
    p: &Product,
    row: usize,
    column: usize,
    from: usize,
    to: usize,
) {
    let mut sums = [[s.splat(0.0); V]; R];
    // SAFETY: rows `row..row + R` and columns `column..column + 16 V` exist in `x`, `out`, biases and the panel.
    unsafe {
        let x = p.x.add(row * p.x_stride);
        let out = p.out.add(row * p.out_stride + column);
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = p.begin(s, from, column + v * LANES, out.add(r * p.out_stride + v * LANES));
            }
        }
        for k in from..to {
            let pairs = p.weights.cast::<u32>().add(k * PANEL + column);
            let mut w = [(s.splat(0.0), s.splat(0.0)); V];
            for (v, w) in w.iter_mut().enumerate() {
                *w = s.load_pairs(pairs.add(v * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let pair = x.add(r * p.x_stride).cast::<u32>().add(k).read();
                let (even, odd) = (s.splat(f32::from_bits(pair << 16)), s.splat(f32::from_bits(pair & 0xffff_0000)));
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = s.fma(even, w.0, s.fma(odd, w.1, *sum));
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                s.store(out.add(r * p.out_stride + v * LANES), *sum);
            }
        }
    }
}

/// The dot product of AVX512-BF16.
#[cfg(target_arch = "x86_64")]
mod dot {
    use super::super::product::Start;
    use super::{LANES, PAIRS_BLOCK, PANEL, Product, padded};
    use std::arch::x86_64::*;

    /// Rows of a register tile: 6 x 4 accumulators, 4 weights and a broadcast of 32 registers.
    const TILE_ROWS: usize = 6;
    /// Vectors of a panel.
    const V: usize = PANEL / LANES;

    /// See [`super::multiply`].
    ///
    /// # Safety
    /// As there; and the CPU has AVX512-BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) unsafe fn multiply(p: &Product) {
        let pairs = padded(p.inputs) / 2;
        for from in (0..pairs).step_by(PAIRS_BLOCK) {
            let to = pairs.min(from + PAIRS_BLOCK);
            let mut row = 0;
            while row < p.rows {
                let rows = (p.rows - row).min(TILE_ROWS);
                // SAFETY: the rows `row..row + rows` exist.
                unsafe {
                    match rows {
                        1 => tile::<1>(p, row, from, to),
                        2 => tile::<2>(p, row, from, to),
                        3 => tile::<3>(p, row, from, to),
                        4 => tile::<4>(p, row, from, to),
                        5 => tile::<5>(p, row, from, to),
                        _ => tile::<TILE_ROWS>(p, row, from, to),
                    }
                }
                row += rows;
            }
        }
    }

    /// `R` rows, in registers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn tile<const R: usize>(p: &Product, row: usize, from: usize, to: usize) {
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        // SAFETY: rows `row..row + R` exist in `x` and `out`; biases and the panel have 64 outputs.
        unsafe {
            let x = p.x.add(row * p.x_stride);
            let out = p.out.add(row * p.out_stride);
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    match p.start_at(from) {
                        Start::Zero => {}
                        Start::Bias(bias) => *sum = _mm512_loadu_ps(bias.add(v * LANES)),
                        Start::Out => *sum = _mm512_loadu_ps(out.add(r * p.out_stride + v * LANES)),
                    }
                }
            }
            for k in from..to {
                let pairs = p.weights.cast::<i32>().add(k * PANEL);
                let mut w = [_mm512_setzero_si512(); V];
                for (v, w) in w.iter_mut().enumerate() {
                    *w = _mm512_loadu_si512(pairs.add(v * LANES).cast());
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let pair = _mm512_set1_epi32(x.add(r * p.x_stride).cast::<i32>().add(k).read());
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = _mm512_dpbf16_ps(*sum, pairs_of(pair), pairs_of(w));
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(out.add(r * p.out_stride + v * LANES), *sum);
                }
            }
        }
    }

    /// Returns the bits as pairs of bf16.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn pairs_of(bits: __m512i) -> __m512bh {
        // SAFETY: both are 512 bits without invalid values.
        unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
    }
}
