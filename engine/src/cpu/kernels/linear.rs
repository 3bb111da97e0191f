//! Product of activation rows with one panel of weights.
//!
//! A panel holds 64 outputs, input by input: one load gives 16 outputs' weights for one input, which are multiplied by
//! that input's activation in all lanes. Every output is one accumulator that runs over the inputs in order, so that its
//! bits depend on nothing but its own row. Register tiles of several rows use each loaded weight several times.

use super::dispatch;
use crate::cpu::simd::{LANES, Number, Simd};

/// Outputs of a panel.
pub(in crate::cpu) const PANEL: usize = 4 * LANES;

/// Inputs that all rows go through before any goes on: as many as keep a panel's part in the L2 cache. The partial sums
/// wait in the output meanwhile, unrounded, since they are f32 either way.
const DEPTH_BLOCK: usize = 1024;

/// One panel's product: `out[r][..64] = bias + x[r] * panel`.
pub(in crate::cpu) struct LinearPanel {
    /// The first row of activations.
    pub(in crate::cpu) x: *const f32,
    /// Numbers from one row of activations to the next.
    pub(in crate::cpu) x_stride: usize,
    /// Rows.
    pub(in crate::cpu) rows: usize,
    /// Inputs.
    pub(in crate::cpu) depth: usize,
    /// The panel: `depth` times 64 weights.
    pub(in crate::cpu) weights: *const u8,
    /// 64 biases; null for none.
    pub(in crate::cpu) bias: *const f32,
    /// The first row of outputs of this panel.
    pub(in crate::cpu) out: *mut f32,
    /// Numbers from one row of outputs to the next.
    pub(in crate::cpu) out_stride: usize,
}

dispatch! {
    /// Multiplies.
    ///
    /// # Safety
    /// All that the fields describe can be read; `out` can be written, 64 numbers in every row, and nobody else uses it.
    fn linear(LinearPanel) = panel
}

#[inline(always)]
unsafe fn panel<S: Simd, N: Number>(s: S, p: &LinearPanel) {
    let mut from = 0;
    while from < p.depth {
        let to = (from + DEPTH_BLOCK).min(p.depth);
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
unsafe fn wide_tile<S: Simd, N: Number, const R: usize>(s: S, p: &LinearPanel, row: usize, from: usize, to: usize) {
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
    p: &LinearPanel,
    row: usize,
    column: usize,
    from: usize,
    to: usize,
) {
    let mut sums = [[s.splat(0.0); V]; R];
    // SAFETY: rows `row..row + R` and columns `column..column + 16 V` exist in `x`, `out`, `bias` and the panel.
    unsafe {
        let x = p.x.add(row * p.x_stride);
        let out = p.out.add(row * p.out_stride + column);
        let weights = p.weights.cast::<N>().add(column);
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                if from > 0 {
                    *sum = s.load(out.add(r * p.out_stride + v * LANES));
                } else if !p.bias.is_null() {
                    *sum = s.load(p.bias.add(column + v * LANES));
                }
            }
        }
        for k in from..to {
            let mut w = [s.splat(0.0); V];
            for (v, w) in w.iter_mut().enumerate() {
                *w = N::load(s, weights.add(k * PANEL + v * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = s.splat(x.add(r * p.x_stride + k).read());
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
