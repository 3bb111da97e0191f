//! The online softmax of a tile of queries over a tile of scores.
//!
//! Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).

use super::arguments::Attention;
use super::row_states::RowStates;
use super::scratch::Scratch;
use super::tile::POSITIONS;
use crate::cpu::kernels::dispatch;
use crate::cpu::simd::{LANES, Simd};
use half::bf16;

/// Vectors of a query's scores.
const VECTORS: usize = POSITIONS / LANES;

/// Scores of all queries for the positions from `base` on.
pub(super) struct Softmax<'a> {
    /// Says which positions count for which query.
    pub(super) attention: &'a Attention<'a>,
    /// The first position of the tile.
    pub(super) base: usize,
    /// Has the scores, which become weights: in place, or in bf16 in `weights`.
    pub(super) scratch: *mut Scratch,
    /// Weights are bf16.
    pub(super) rounded: bool,
    /// The states of the queries, which go on.
    pub(super) states: RowStates,
}

dispatch! {
    /// Makes weights of scores. Sums and totals so far change their unit where a larger score came.
    ///
    /// # Safety
    /// The scratch has scores of all queries, each has a state, and nobody else uses either.
    fn weigh(Softmax<'_>) = weigh_all, plain numbers
}

#[inline(always)]
unsafe fn weigh_all<S: Simd>(s: S, p: &Softmax<'_>) {
    let a = p.attention;
    for i in 0..a.count {
        let position = a.position(a.first + i);
        let from = a.window_start(position).clamp(p.base, p.base + POSITIONS) - p.base;
        let to = (position + 1).clamp(p.base, p.base + POSITIONS) - p.base;
        // SAFETY: query `i` is one of `count`.
        unsafe {
            let scores = (&raw mut (*p.scratch).scores).cast::<f32>().add(i * POSITIONS);
            let (largest, total) = (p.states.largest(i), p.states.total(i));
            let mut weights = [s.splat(0.0); VECTORS];
            if from < to {
                let mut most = s.splat(f32::NEG_INFINITY);
                for (v, weight) in weights.iter_mut().enumerate() {
                    let score = s.mul(s.load(scores.add(v * LANES)), s.splat(a.scale));
                    let score = match a.cap {
                        Some(cap) => s.soft_cap(score, cap),
                        None => score,
                    };
                    let lane = |end: usize| end.clamp(v * LANES, (v + 1) * LANES) - v * LANES;
                    *weight = match to - from {
                        POSITIONS => score,
                        _ => s.within(score, lane(from), lane(to), f32::NEG_INFINITY),
                    };
                    most = s.max(*weight, most);
                }
                let (before, new) = (largest.read(), s.largest(most));
                let now = if new > before { new } else { before };
                // A loop, since the closure of a `map` would be compiled without the instruction set.
                for weight in &mut weights {
                    *weight = s.exp(s.sub(*weight, s.splat(now)));
                }
                let sum = s.add(s.add(weights[0], weights[1]), s.add(weights[2], weights[3]));
                let shrink = if now == before { 1.0 } else { s.first(s.exp(s.splat(before - now))) };
                if shrink != 1.0 {
                    let sums = p.states.sums(i);
                    for d in (0..p.states.width).step_by(LANES) {
                        s.store(sums.add(d), s.mul(s.load(sums.add(d)), s.splat(shrink)));
                    }
                }
                largest.write(now);
                total.write(total.read() * shrink + s.sum(sum));
            }
            let rounded = (&raw mut (*p.scratch).weights).cast::<bf16>().add(i * POSITIONS);
            for (v, weight) in weights.iter().enumerate() {
                if p.rounded {
                    s.store_bf16(rounded.add(v * LANES), *weight);
                } else {
                    s.store(scores.add(v * LANES), *weight);
                }
            }
        }
    }
}
