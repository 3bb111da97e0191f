//! The softmax state of the queries of a tile, a row for each: how it begins, how the states after two stretches are
//! joined, and the result that it becomes.
//!
//! Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), whose parallel form this is.

use super::arguments::Attention;
use crate::cpu::kernels::dispatch;
use crate::cpu::simd::{LANES, Simd};

/// The softmax state of each query after some of its positions: sums of values by their weights, the largest score,
/// and the sum of the weights.
#[derive(Clone, Copy)]
pub(super) struct RowStates {
    /// The first query's.
    pub(super) first: *mut f32,
    /// Queries.
    pub(super) count: usize,
    /// Sums of each, a multiple of 16.
    pub(super) width: usize,
}

impl RowStates {
    /// Numbers from one query to the next.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        self.width + LANES
    }

    /// Returns the sums of query `i`.
    ///
    /// # Safety
    /// There is room for it. So for the others.
    #[inline(always)]
    pub(super) unsafe fn sums(&self, i: usize) -> *mut f32 {
        // SAFETY: as the caller says.
        unsafe { self.first.add(i * self.stride()) }
    }

    /// Returns the largest score of query `i`.
    ///
    /// # Safety
    /// See [`RowStates::sums`].
    #[inline(always)]
    pub(super) unsafe fn largest(&self, i: usize) -> *mut f32 {
        // SAFETY: as the caller says.
        unsafe { self.sums(i).add(self.width) }
    }

    /// Returns the sum of the weights of query `i`; zero: it attended to nothing.
    ///
    /// # Safety
    /// See [`RowStates::sums`].
    #[inline(always)]
    pub(super) unsafe fn total(&self, i: usize) -> *mut f32 {
        // SAFETY: as the caller says.
        unsafe { self.sums(i).add(self.width + 1) }
    }

    /// Writes the state of queries that have attended to nothing.
    ///
    /// # Safety
    /// There is room for the queries, and nobody else uses it.
    pub(super) unsafe fn begin(&self) {
        for i in 0..self.count {
            // SAFETY: query `i` is one of `count`.
            unsafe {
                self.sums(i).write_bytes(0, self.width);
                self.largest(i).write(f32::NEG_INFINITY);
                self.total(i).write(0.0);
            }
        }
    }
}

/// States of the same queries, after a stretch and after all before it.
pub(super) struct Join {
    /// Before it, and then after it too.
    pub(super) into: RowStates,
    /// After it alone.
    pub(super) from: RowStates,
}

/// What becomes the result.
pub(super) struct Finish<'a> {
    /// Says where that goes.
    pub(super) attention: &'a Attention<'a>,
    /// The states after all positions.
    pub(super) states: RowStates,
}

dispatch! {
    /// Joins. A query that attended to nothing on one side has the bits of the other.
    ///
    /// # Safety
    /// Both are there, and nobody else uses them.
    fn join(Join) = join_all, plain numbers
}

dispatch! {
    /// Divides the sums by the sums of the weights.
    ///
    /// # Safety
    /// The states are there; the queries' places in `out` can be written, and nobody else uses them.
    fn finish(Finish<'_>) = divide, plain numbers
}

#[inline(always)]
unsafe fn join_all<S: Simd>(s: S, p: &Join) {
    let (into, from) = (p.into, p.from);
    for i in 0..into.count {
        // SAFETY: query `i` is one of `count`, and has `width` sums.
        unsafe {
            let (before, more) = (into.total(i).read(), from.total(i).read());
            // Weights that are no numbers have a sum that is none, and count.
            if more == 0.0 {
                continue;
            }
            if before == 0.0 {
                into.sums(i).copy_from_nonoverlapping(from.sums(i), into.width + 2);
                continue;
            }
            let (largest, other) = (into.largest(i).read(), from.largest(i).read());
            let now = if other > largest { other } else { largest };
            let (shrink, scale) = (unit(s, largest, now), unit(s, other, now));
            for d in (0..into.width).step_by(LANES) {
                let sums = s.mul(s.load(into.sums(i).add(d)), s.splat(shrink));
                s.store(into.sums(i).add(d), s.fma(s.load(from.sums(i).add(d)), s.splat(scale), sums));
            }
            into.largest(i).write(now);
            into.total(i).write(before * shrink + more * scale);
        }
    }
}

/// Returns what a weight of 1 becomes where `largest` was the largest score and `now` is.
#[inline(always)]
fn unit<S: Simd>(s: S, largest: f32, now: f32) -> f32 {
    if largest == now { 1.0 } else { s.first(s.exp(s.splat(largest - now))) }
}

#[inline(always)]
unsafe fn divide<S: Simd>(s: S, p: &Finish<'_>) {
    let (a, states) = (p.attention, p.states);
    for i in 0..a.count {
        // SAFETY: query `i` has `head_dim` numbers in `out` and `width` sums.
        unsafe {
            let (total, sums) = (s.splat(states.total(i).read()), states.sums(i));
            let out = a.out.add(a.offset(a.first + i, a.out_stride));
            for d in (0..a.head_dim).step_by(LANES) {
                let result = s.div(s.load(sums.add(d)), total);
                if a.head_dim - d >= LANES {
                    s.store(out.add(d), result);
                } else {
                    s.store_part(out.add(d), result, a.head_dim - d);
                }
            }
        }
    }
}
