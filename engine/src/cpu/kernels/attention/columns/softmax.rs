//! The online softmax of 16 queries over 64 positions, a query in each lane: see [`super`].
//!
//! Scores come in units of ln 2, so that weights are powers of 2. The unit of a query's sums is changed only where
//! a score is larger than the one it was chosen by, by [`LEAD`] or more: until then weights are at most
//! 2^[`LEAD`], which bf16 and f32 hold as exactly as those below 1.
//!
//! Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); the lead is FlashAttention-4's.

use super::exp2::exp2;
use super::kv_rows::Prefetch;
use super::lane_states::LaneStates;
use super::shapes::{COLUMNS, GROUPS};
use crate::cpu::kernels::attention::tile::POSITIONS;
use crate::cpu::simd::{Avx512, LANES, Simd};
use std::arch::x86_64::*;

/// How much larger a score must be to become the unit.
const LEAD: f32 = 8.0;
/// Numbers from one position's scores to the next one's.
const STRIDE: usize = GROUPS * COLUMNS;

/// What 16 queries attend to.
#[repr(C, align(64))]
pub(super) struct Lanes {
    /// First and last position that each attends to.
    pub(super) first: [i32; LANES],
    pub(super) last: [i32; LANES],
}

/// Scores that become weights.
pub(super) struct Weigh {
    /// The queries.
    pub(super) lanes: *const Lanes,
    /// `[64 positions][32]`, of which these queries have the first 16 numbers.
    pub(super) scores: *mut f32,
    /// The first position.
    pub(super) base: usize,
    /// Whether some query does not attend to some of the positions.
    pub(super) masked: bool,
    /// Soft cap of the scores; they are in natural units then.
    pub(super) cap: Option<f32>,
    /// The weights, `[32 pairs of positions][16 queries]`.
    pub(super) weights: *mut u32,
    /// The states of the queries, which go on.
    pub(super) states: LaneStates,
    /// What is prefetched meanwhile.
    pub(super) prefetch: Prefetch,
}

/// Makes weights of scores.
///
/// # Safety
/// The CPU has what AMX asks for here ([`super::attend`]), the memory is there that the fields describe, and
/// nobody else uses it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
pub(super) unsafe fn weigh(s: Avx512, p: &Weigh) {
    // SAFETY: rows are below 64, and the rest as the caller says.
    unsafe {
        if let Some(cap) = p.cap {
            for row in 0..POSITIONS {
                let at = p.scores.add(row * STRIDE);
                s.store(at, s.mul(s.soft_cap(s.load(at), cap), s.splat(std::f32::consts::LOG2_E)));
            }
        }
        if p.masked {
            let first = _mm512_load_si512((&raw const (*p.lanes).first).cast());
            let last = _mm512_load_si512((&raw const (*p.lanes).last).cast());
            for row in 0..POSITIONS {
                let position = _mm512_set1_epi32((p.base + row) as i32);
                let seen = _mm512_cmple_epi32_mask(first, position) & _mm512_cmple_epi32_mask(position, last);
                _mm512_mask_storeu_ps(p.scores.add(row * STRIDE), !seen, _mm512_set1_ps(f32::NEG_INFINITY));
            }
        }
        let mut most = [_mm512_set1_ps(f32::NEG_INFINITY); 4];
        for row in (0..POSITIONS).step_by(most.len()) {
            for (i, most) in most.iter_mut().enumerate() {
                // The maximum ignores NaN scores. Their weights stay NaN, so the step's check for finite numbers
                // finds them.
                *most = _mm512_max_ps(_mm512_load_ps(p.scores.add((row + i) * STRIDE)), *most);
            }
        }
        let most = _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3]));
        let unit = change_unit(p, most);

        let mut totals = [_mm512_setzero_ps(); 2];
        let interleaved = interleaved();
        for pair in 0..POSITIONS / 2 {
            p.prefetch.issue(pair);
            let scores = p.scores.add(2 * pair * STRIDE);
            let even = exp2(_mm512_sub_ps(_mm512_load_ps(scores), unit));
            let odd = exp2(_mm512_sub_ps(_mm512_load_ps(scores.add(STRIDE)), unit));
            totals = [_mm512_add_ps(totals[0], even), _mm512_add_ps(totals[1], odd)];
            let rounded = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even));
            _mm512_store_si512(p.weights.add(pair * LANES).cast(), _mm512_permutexvar_epi16(interleaved, rounded));
        }
        let total = p.states.total();
        _mm512_store_ps(total, _mm512_add_ps(_mm512_load_ps(total), _mm512_add_ps(totals[0], totals[1])));
    }
}

/// The unit by which scores of which `most` are the largest are weighed: a new one, for totals and sums too, in
/// the lanes that need it. A lane that has seen no position is weighed by 0, which leaves its weights 0.
///
/// # Safety
/// As [`weigh`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
unsafe fn change_unit(p: &Weigh, most: __m512) -> __m512 {
    // SAFETY: as the caller says.
    unsafe {
        let at = p.states.unit();
        let before = _mm512_load_ps(at);
        let grown = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(most, _mm512_add_ps(before, _mm512_set1_ps(LEAD)));
        let unit = _mm512_mask_mov_ps(before, grown, most);
        if grown != 0 {
            _mm512_store_ps(at, unit);
            let shrink = _mm512_mask_mov_ps(_mm512_set1_ps(1.0), grown, exp2(_mm512_sub_ps(before, unit)));
            let shrinks = |at: *mut f32| _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), shrink));
            shrinks(p.states.total());
            (0..p.states.sums).for_each(|number| shrinks(p.states.sums().add(number * LANES)));
        }
        let nothing = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(unit, _mm512_set1_ps(f32::NEG_INFINITY));
        _mm512_mask_mov_ps(unit, nothing, _mm512_setzero_ps())
    }
}

/// Returns which of 16 even and then 16 odd numbers goes where, so that the two of a query are neighbours.
#[inline]
#[target_feature(enable = "avx512f")]
fn interleaved() -> __m512i {
    const PLACES: [u16; 2 * LANES] = {
        let mut places = [0; 2 * LANES];
        let mut i = 0;
        while i < 2 * LANES {
            places[i] = (i / 2 + i % 2 * LANES) as u16;
            i += 1;
        }
        places
    };
    // SAFETY: there are 64 bytes.
    unsafe { _mm512_loadu_si512(PLACES.as_ptr().cast()) }
}
