//! The kernel for some rows, on any instruction set: tiles of rows and outputs, whose integer sums are in registers.

use super::block::Block;
use super::dot::Dot;
use super::panels::{Kind, Scales, Weights, place, step};
use super::pass::{LINE, Pass};
use crate::cpu::simd::{LANES, Simd};

/// How far ahead of the weights that are multiplied others are asked for, in bytes: the processor's own guesses
/// stop at pages.
const AHEAD: usize = 8 << 10;

/// Multiplies the rows from `row` on.
///
/// # Safety
/// As for [`super::super::Form::multiply`]; the CPU has what `d` proves, and this is compiled for it.
#[inline(always)]
pub(super) unsafe fn multiply<D: Dot, F: Weights>(d: D, pass: &Pass<'_>, mut row: usize) {
    while row < pass.product.rows {
        let rows = (pass.product.rows - row).min(D::TILE.0);
        // SAFETY: the rows `row..row + rows` exist.
        unsafe {
            match rows {
                1 => wide_tile::<D, F, 1>(d, pass, row),
                2 => wide_tile::<D, F, 2>(d, pass, row),
                3 => wide_tile::<D, F, 3>(d, pass, row),
                4 => wide_tile::<D, F, 4>(d, pass, row),
                5 => wide_tile::<D, F, 5>(d, pass, row),
                _ => wide_tile::<D, F, 6>(d, pass, row),
            }
        }
        row += rows;
    }
}

/// The whole width of the panel, for `R` rows from `row` on.
#[inline(always)]
unsafe fn wide_tile<D: Dot, F: Weights, const R: usize>(d: D, pass: &Pass<'_>, row: usize) {
    if R > D::TILE.0 {
        return;
    }
    // A loop, not a closure: a closure can stay a function of its own, which is compiled without the features of the
    // CPU and calls a function for each instruction.
    for vector in (0..4).step_by(D::TILE.1) {
        // SAFETY: as the caller says; a panel has four vectors.
        unsafe {
            match D::TILE.1 {
                1 => tile::<D, F, R, 1>(d, pass, row, vector),
                2 => tile::<D, F, R, 2>(d, pass, row, vector),
                _ => tile::<D, F, R, 4>(d, pass, row, vector),
            }
        }
    }
}

/// `R` rows and `V` vectors of outputs.
#[inline(always)]
unsafe fn tile<D: Dot, F: Weights, const R: usize, const V: usize>(d: D, pass: &Pass<'_>, row: usize, vector: usize) {
    let (p, s) = (pass.product, d.simd());
    let mut outs = [[s.splat(0.0); V]; R];
    // SAFETY: rows `row..row + R`, vectors `vector..vector + V` and the blocks exist in `x`, `out`, biases and the
    // panel.
    unsafe {
        let x = p.x.add(row * p.x_stride);
        let out = p.out.add(row * p.out_stride + vector * LANES);
        for (r, outs) in outs.iter_mut().enumerate() {
            for (v, value) in outs.iter_mut().enumerate() {
                let out = out.add(r * p.out_stride + v * LANES);
                *value = p.begin(s, pass.blocks.start, (vector + v) * LANES, out);
            }
        }
        for block in pass.blocks.clone() {
            let (group, slab) = place::<F>(block);
            let (group, slab) = (p.weights.add(group), p.weights.add(slab));
            let integers = slab.add(F::INTEGERS);
            let x = |r: usize| &*x.add(r * p.x_stride).cast::<Block>().add(block);
            for line in (0..F::SLAB).step_by(LINE) {
                d.prefetch(slab.wrapping_add(AHEAD + line));
            }
            let mut sums = [[d.splat(0); V]; R];
            if F::KIND != Kind::Nibbles {
                for (r, sums) in sums.iter_mut().enumerate() {
                    *sums = [if F::KIND == Kind::Bytes { d.start(x(r)) } else { d.splat(x(r).halves[0]) }; V];
                }
            }
            dots::<D, F, R, V, 0>(d, &mut sums, integers, vector, &x);
            dots::<D, F, R, V, 1>(d, &mut sums, integers, vector, &x);
            dots::<D, F, R, V, 2>(d, &mut sums, integers, vector, &x);
            dots::<D, F, R, V, 3>(d, &mut sums, integers, vector, &x);
            if F::KIND == Kind::Six {
                for v in 0..V {
                    if let Scales::Halves(scale, _) = F::scales(d, group, slab, vector + v) {
                        for r in 0..R {
                            let scale = s.mul(scale, s.splat(x(r).scale));
                            outs[r][v] = s.fma(d.widen(sums[r][v]), scale, outs[r][v]);
                            sums[r][v] = d.splat(x(r).halves[1]);
                        }
                    }
                }
            }
            dots::<D, F, R, V, 4>(d, &mut sums, integers, vector, &x);
            dots::<D, F, R, V, 5>(d, &mut sums, integers, vector, &x);
            dots::<D, F, R, V, 6>(d, &mut sums, integers, vector, &x);
            dots::<D, F, R, V, 7>(d, &mut sums, integers, vector, &x);
            for v in 0..V {
                let (scale, min) = match F::scales(d, group, slab, vector + v) {
                    Scales::One(scale) | Scales::Halves(_, scale) => (scale, None),
                    Scales::Offset(scale, min) => (scale, Some(min)),
                };
                for r in 0..R {
                    let factor = s.mul(scale, s.splat(x(r).scale));
                    outs[r][v] = s.fma(d.widen(sums[r][v]), factor, outs[r][v]);
                    if let Some(min) = min {
                        outs[r][v] = s.fma(min, s.splat(x(r).offset), outs[r][v]);
                    }
                }
            }
        }
        for (r, outs) in outs.iter().enumerate() {
            for (v, value) in outs.iter().enumerate() {
                s.store(out.add(r * p.out_stride + v * LANES), *value);
            }
        }
    }
}

/// Adds the products of step `STEP`.
///
/// # Safety
/// The slab's integers can be read, and `x` gives blocks that can.
#[inline(always)]
unsafe fn dots<'a, D: Dot, F: Weights, const R: usize, const V: usize, const STEP: usize>(
    d: D,
    sums: &mut [[D::I; V]; R],
    integers: *const u8,
    vector: usize,
    x: &impl Fn(usize) -> &'a Block,
) {
    // SAFETY: as the caller says.
    let mut w = [unsafe { step::<D, F>(d, integers, STEP, vector) }; V];
    for (v, w) in w.iter_mut().enumerate().skip(1) {
        // SAFETY: as the caller says.
        *w = unsafe { step::<D, F>(d, integers, STEP, vector + v) };
    }
    for (r, sums) in sums.iter_mut().enumerate() {
        let four = &x(r).numbers[4 * STEP..4 * STEP + 4];
        let four = [four[0], four[1], four[2], four[3]];
        for (sum, w) in sums.iter_mut().zip(w) {
            *sum = match F::KIND {
                Kind::Bytes => d.dot::<true>(*sum, w, four),
                Kind::Nibbles | Kind::Six => d.dot::<false>(*sum, w, four),
            };
        }
    }
}
