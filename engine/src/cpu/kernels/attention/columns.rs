//! Attention over a cache of bf16 with queries as columns, on AMX.
//!
//! Scores are keys times queries. Keys are the rows of tiles as they lie in the cache, so nothing of them is
//! packed; 16 queries are the lanes of a vector, so the softmax folds whole vectors; and the weights of two
//! positions are a row of pairs, as the second product takes its columns. Its rows are the numbers of a head:
//! values alone are transposed, once for all queries of a call, which is why a call takes more of them than elsewhere.
//!
//! A query is a lane from beginning to end. Lanes that no query is in have queries of zeros; nobody reads what
//! becomes of them.

mod exp2;
mod kv_rows;
mod lane_states;
mod shapes;
mod softmax;
mod tiles;
mod transpose;

use super::arguments::{Attention, HEAD_DIM_MAX, KeptStates};
use super::tile::POSITIONS;
use crate::cpu::kernels::linear::Tiles;
use crate::cpu::simd::{Avx512, LANES};
use half::bf16;
use lane_states::LaneStates;
use shapes::{COLUMNS, DEPTH, GROUPS, padded};
use softmax::{Lanes, Weigh};
use std::mem::MaybeUninit;
use std::ops::Range;
use tiles::{Scores, Sums, TILES};
use transpose::{finish, transpose_queries, transpose_values};

/// Numbers of all queries of a call, at most: with their sums they leave a processor's own cache room for more.
const NUMBERS_MAX: usize = 16 << 10;
/// How many positions ahead of those that are read others are prefetched: the memory takes about as long as a tile.
const PREFETCHED: usize = 2 * POSITIONS;
/// Queries of a call, at most.
const QUERIES_MAX: usize = 256;

/// Queries of a call, at most, where a head has so many numbers.
pub(super) fn queries_max(head_dim: usize) -> usize {
    (NUMBERS_MAX / padded(head_dim) / (GROUPS * COLUMNS) * (GROUPS * COLUMNS)).min(QUERIES_MAX)
}

/// Numbers of the state of a query: unit, total and sums.
pub(super) fn state_numbers(head_dim: usize) -> usize {
    2 + padded(head_dim)
}

/// What a call works on; large, so left uninitialised where it is not used.
#[repr(C, align(64))]
struct Scratch {
    /// Of 16 queries and 32 numbers of a head each: a tile of rounded ones, and one of what rounding left out.
    queries: [MaybeUninit<u32>; NUMBERS_MAX],
    /// Keys and values of positions that do not lie as tiles take them; queries before they are transposed.
    copied: [MaybeUninit<bf16>; 2 * POSITIONS * HEAD_DIM_MAX],
    /// Transposed: of 16 numbers of a head, a tile of 32 positions and one of the next 32.
    values: [MaybeUninit<u32>; POSITIONS / 2 * HEAD_DIM_MAX],
    /// `[64 positions][32 queries]`.
    scores: [MaybeUninit<f32>; POSITIONS * GROUPS * COLUMNS],
    /// What becomes of them: of 16 queries, `[32 pairs of positions][queries]`.
    weights: [MaybeUninit<u32>; GROUPS * POSITIONS / 2 * COLUMNS],
    /// States of 16 queries each, after all stretches that are behind and after the one that is not.
    states: [[MaybeUninit<f32>; 2 * QUERIES_MAX + NUMBERS_MAX]; 2],
    /// Of 16 queries each.
    lanes: [MaybeUninit<Lanes>; QUERIES_MAX / COLUMNS],
}

/// Attends.
///
/// # Safety
/// As [`super::attend`], for at most [`queries_max`] queries; and the process may use AMX.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
pub(super) unsafe fn attend(s: Avx512, a: &Attention<'_>, stretches: Range<usize>, kept: Option<KeptStates>) {
    let (depth, groups) = (padded(a.head_dim), a.count.div_ceil(COLUMNS));
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let scratch = scratch.as_mut_ptr();
    // SAFETY: every part of the scratch has room for the queries of a call.
    unsafe {
        let queries = (&raw mut (*scratch).queries).cast::<u32>();
        let lanes = (&raw mut (*scratch).lanes).cast::<Lanes>();
        for group in 0..groups {
            transpose_queries(s, a, group, (&raw mut (*scratch).copied).cast(), queries.add(group * depth * COLUMNS));
            lanes.add(group).write(a.lanes(group));
        }
        let [behind, present] = [0, 1].map(|i| (&raw mut (*scratch).states[i]).cast::<f32>());
        let (_, last) = a.seen(stretches.end - 1);
        TILES.load();
        for (index, stretch) in stretches.enumerate() {
            let states = match kept {
                Some(kept) => kept.of(index),
                None if index == 0 => behind,
                None => present,
            };
            (0..groups).for_each(|group| a.states_of(group, states).begin());
            attend_stretch(s, a, stretch, last, scratch, states);
            if kept.is_none() && index > 0 {
                (0..groups).for_each(|group| a.states_of(group, behind).join(a.states_of(group, present)));
            }
        }
        Tiles::release();
        if kept.is_none() {
            (0..groups).for_each(|group| finish(s, a, group, a.states_of(group, behind)));
        }
    }
}

/// The result of what was kept of all stretches.
///
/// # Safety
/// As [`super::join`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
pub(super) unsafe fn join(s: Avx512, a: &Attention<'_>, stretches: usize, kept: KeptStates) {
    for group in 0..a.count.div_ceil(COLUMNS) {
        // SAFETY: as the caller says.
        unsafe {
            let states = a.states_of(group, kept.of(0));
            (1..stretches).for_each(|stretch| states.join(a.states_of(group, kept.of(stretch))));
            finish(s, a, group, states);
        }
    }
}

/// Attends to a stretch, from `states` on. What is before `last` will be attended to after it.
///
/// # Safety
/// As [`attend`]; the scratch has queries and lanes, and [`TILES`] are configured.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
unsafe fn attend_stretch(
    s: Avx512,
    a: &Attention<'_>,
    stretch: usize,
    last: usize,
    scratch: *mut Scratch,
    states: *mut f32,
) {
    let (depth, groups) = (padded(a.head_dim), a.count.div_ceil(COLUMNS));
    let numbers = depth * COLUMNS;
    let (begin, end) = a.seen(stretch);
    // SAFETY: every part of the scratch has room for the queries of a call, and the blocks hold the positions of
    // each tile that are attended to.
    unsafe {
        let queries = (&raw mut (*scratch).queries).cast::<u32>();
        let values = (&raw mut (*scratch).values).cast::<u32>();
        let (scores, weights) =
            ((&raw mut (*scratch).scores).cast::<f32>(), (&raw mut (*scratch).weights).cast::<u32>());
        let lanes = (&raw mut (*scratch).lanes).cast::<Lanes>();
        for base in (begin / POSITIONS * POSITIONS..end).step_by(POSITIONS) {
            let (from, to) = (begin.max(base), end.min(base + POSITIONS));
            let rows = a.kv_rows(base, from, to, (&raw mut (*scratch).copied).cast());
            let mut prefetch = a.prefetch(base + PREFETCHED, last);
            transpose_values(s, &rows, depth, values);
            for group in (0..groups).step_by(GROUPS) {
                let both = group + 1 < groups;
                let (first, last) = a.range(group, GROUPS);
                if base > last || base + POSITIONS <= a.window_start(first) {
                    continue;
                }
                let next = group + usize::from(both);
                let product = Scores {
                    keys: rows.map(|rows| rows.keys.cast()),
                    key_stride: depth * size_of::<bf16>(),
                    queries: [queries.add(group * numbers).cast_const(), queries.add(next * numbers).cast_const()],
                    steps: depth / DEPTH,
                    out: scores,
                };
                if both {
                    product.of_both()
                } else {
                    product.of_first()
                }
                for (column, group) in (group..=next).enumerate() {
                    let (first, last) = a.range(group, 1);
                    let weigh = Weigh {
                        lanes: lanes.add(group),
                        scores: scores.add(column * COLUMNS),
                        base,
                        masked: base + POSITIONS > first + 1 || base < a.window_start(last),
                        cap: a.cap,
                        weights: weights.add(column * POSITIONS / 2 * COLUMNS),
                        states: a.states_of(group, states),
                        prefetch: std::mem::take(&mut prefetch),
                    };
                    softmax::weigh(s, &weigh);
                }
                let product = Sums {
                    values,
                    weights: [weights.cast_const(), weights.add(POSITIONS / 2 * COLUMNS).cast_const()],
                    sums: [group, next].map(|group| a.states_of(group, states).sums()),
                    steps: depth / DEPTH,
                };
                if both { product.add_both() } else { product.add_first() }
            }
        }
    }
}

impl Attention<'_> {
    /// Positions of the earliest and of the latest of the queries in so many groups from this one on.
    fn range(&self, group: usize, groups: usize) -> (usize, usize) {
        let last = self.count.min((group + groups) * COLUMNS) - 1;
        (self.position(self.first + group * COLUMNS), self.position(self.first + last))
    }

    /// Returns what 16 queries attend to. Lanes without a query attend to what the last one does.
    fn lanes(&self, group: usize) -> Lanes {
        let mut lanes = Lanes { first: [0; LANES], last: [0; LANES] };
        for (lane, (first, last)) in lanes.first.iter_mut().zip(&mut lanes.last).enumerate() {
            let position = self.position(self.first + (group * COLUMNS + lane).min(self.count - 1));
            (*first, *last) = (self.window_start(position) as i32, position as i32);
        }
        lanes
    }

    /// The states of 16 queries, where those of all begin here.
    ///
    /// # Safety
    /// There is room for it.
    unsafe fn states_of(&self, group: usize, first: *mut f32) -> LaneStates {
        // SAFETY: as the caller says.
        let first = unsafe { first.add(group * COLUMNS * state_numbers(self.head_dim)) };
        LaneStates { first, sums: padded(self.head_dim) }
    }
}
