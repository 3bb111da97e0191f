//! Weights in f32 or f16, widened on load and multiplied in f32.
//!
//! A panel is `[inputs][64 outputs]`: one load gives 16 outputs' weights for one input, which are multiplied by
//! that input's activation in all lanes. Every output is one accumulator that runs over the inputs in order, so
//! that its bits depend on nothing but its own row. Register tiles of several rows use each loaded weight several
//! times.

use super::product::{PANEL, Product};
use crate::cpu::kernels::dispatch;
use crate::cpu::simd::{LANES, Number, Simd};

/// Inputs that all rows go through before any goes on: as many as keep a panel's part in the L2 cache. The
/// partial sums wait in the output meanwhile, unrounded, since they are f32 either way.
const DEPTH_BLOCK: usize = 512;
/// Inputs that are packed at a time, so that what is written stays in the L1 cache until its lines are whole.
const PACKED_AT_ONCE: usize = 32;

dispatch! {
    /// See [`super::Form::multiply`].
    ///
    /// # Safety
    /// As there.
    fn multiply(Product) = panel
}

/// See [`super::Form::pack`].
///
/// # Safety
/// As there.
pub(super) unsafe fn pack<N: Number>(rows: &[&[u8]], inputs: usize, to: *mut N) {
    for first in (0..inputs).step_by(PACKED_AT_ONCE) {
        for (output, row) in rows.iter().enumerate() {
            let numbers = row[first * size_of::<N>()..].chunks_exact(size_of::<N>()).take(PACKED_AT_ONCE);
            for (input, number) in (first..).zip(numbers) {
                // SAFETY: a chunk is one number; output and input are inside the panel.
                unsafe { to.add(input * PANEL + output).write(number.as_ptr().cast::<N>().read_unaligned()) };
            }
        }
    }
}

/// See [`super::Form::widen`].
///
/// # Safety
/// As there.
pub(super) unsafe fn widen<N: Number>(panel: *const N, inputs: usize, output: usize, out: *mut f32) {
    for input in 0..inputs {
        // SAFETY: output and input are inside the panel, and `out` has `inputs` numbers.
        unsafe { out.add(input).write(panel.add(input * PANEL + output).read().widen()) };
    }
}

#[inline(always)]
unsafe fn panel<S: Simd, N: Number>(s: S, p: &Product) {
    let mut from = 0;
    while from < p.inputs {
        let to = (from + DEPTH_BLOCK).min(p.inputs);
        let mut row = 0;
        while row < p.rows {
            let rows = (p.rows - row).min(S::TILE_ROWS);
            // SAFETY: the rows `row..row + rows` exist.
            unsafe {
                match rows {
                    1 => wide_tile::<S, N, 1>(s, p, row, from, to),
                    2 => wide_tile::<S, N, 2>(s, p, row, from, to),
                    3 => wide_tile::<S, N, 3>(s, p, row, from, to),
                    4 => wide_tile::<S, N, 4>(s, p, row, from, to),
                    5 => wide_tile::<S, N, 5>(s, p, row, from, to),
                    _ => wide_tile::<S, N, 6>(s, p, row, from, to),
                }
            }
            row += rows;
        }
        from = to;
    }
}

/// The whole width of the panel, for `R` rows from `row` on and the inputs `from..to`.
#[inline(always)]
unsafe fn wide_tile<S: Simd, N: Number, const R: usize>(s: S, p: &Product, row: usize, from: usize, to: usize) {
    if R > S::TILE_ROWS {
        return;
    }
    // SAFETY: as the caller says; a row has 64 outputs.
    unsafe {
        if S::TILE_WIDE || R == 1 {
            tile::<S, N, R, 4>(s, p, row, 0, from, to);
        } else {
            tile::<S, N, R, 2>(s, p, row, 0, from, to);
            tile::<S, N, R, 2>(s, p, row, 2 * LANES, from, to);
        }
    }
}

/// `R` rows and `V` vectors of outputs, in registers.
#[inline(always)]
unsafe fn tile<S: Simd, N: Number, const R: usize, const V: usize>(
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
        let x = p.x.add(row * p.x_stride).cast::<f32>();
        let x_stride = p.x_stride / size_of::<f32>();
        let out = p.out.add(row * p.out_stride + column);
        let weights = p.weights.cast::<N>().add(column);
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = p.begin(s, from, column + v * LANES, out.add(r * p.out_stride + v * LANES));
            }
        }
        for k in from..to {
            let mut w = [s.splat(0.0); V];
            for (v, w) in w.iter_mut().enumerate() {
                *w = N::load(s, weights.add(k * PANEL + v * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = s.splat(x.add(r * x_stride + k).read());
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = s.fma(x, w, *sum);
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
