//! The softmax states of 16 queries, a lane of vectors for each: how they begin, and how the states after two stretches
//! are joined. The result that they become is transposed: [`super::transpose::finish`].

use super::exp2::exp2;
use crate::cpu::simd::LANES;
use std::arch::x86_64::*;

/// The softmax states of 16 queries after some of their positions. Vectors, with a lane for each query: the unit, which
/// is the score that is weighed as 1; the sum of the weights; and sums of values by their weights, one for each number
/// of a head.
#[derive(Clone, Copy)]
pub(super) struct LaneStates {
    /// The first vector, at the beginning of a cache line.
    pub(super) first: *mut f32,
    /// Vectors of sums.
    pub(super) sums: usize,
}

impl LaneStates {
    /// Returns the units.
    pub(super) fn unit(&self) -> *mut f32 {
        self.first
    }

    /// Returns the sums of the weights; zero where nothing was attended to.
    pub(super) fn total(&self) -> *mut f32 {
        self.first.wrapping_add(LANES)
    }

    /// Returns the sums of values.
    pub(super) fn sums(&self) -> *mut f32 {
        self.first.wrapping_add(2 * LANES)
    }

    /// Writes the states of queries that have attended to nothing.
    ///
    /// # Safety
    /// There is room for it, and nobody else uses that.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn begin(&self) {
        // SAFETY: as the caller says.
        unsafe {
            _mm512_store_ps(self.unit(), _mm512_set1_ps(f32::NEG_INFINITY));
            _mm512_store_ps(self.total(), _mm512_setzero_ps());
            self.sums().write_bytes(0, self.sums * LANES);
        }
    }

    /// Joins the states after a stretch alone to those after all before it. A query that attended to
    /// nothing on one side has the bits of the other; weights that are no numbers have a sum that is none, and
    /// count.
    ///
    /// # Safety
    /// Both are there, apart, and nobody else uses them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn join(&self, from: LaneStates) {
        // SAFETY: as the caller says.
        unsafe {
            let (before, more) = (_mm512_load_ps(self.total()), _mm512_load_ps(from.total()));
            let nothing_more = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(more, _mm512_setzero_ps());
            let only_more = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(before, _mm512_setzero_ps()) & !nothing_more;
            let (unit, other) = (_mm512_load_ps(self.unit()), _mm512_load_ps(from.unit()));
            let now = _mm512_max_ps(unit, other);
            let scale = |unit| {
                let same = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(unit, now);
                _mm512_mask_mov_ps(exp2(_mm512_sub_ps(unit, now)), same, _mm512_set1_ps(1.0))
            };
            let (shrink, scale) = (scale(unit), scale(other));
            let join = |into: *mut f32, from: *const f32| {
                let (before, more) = (_mm512_load_ps(into), _mm512_load_ps(from));
                let both = _mm512_fmadd_ps(more, scale, _mm512_mul_ps(before, shrink));
                let sum = _mm512_mask_mov_ps(both, nothing_more, before);
                _mm512_store_ps(into, _mm512_mask_mov_ps(sum, only_more, more));
            };
            _mm512_store_ps(self.unit(), now);
            join(self.total(), from.total());
            for at in (0..self.sums * LANES).step_by(LANES) {
                join(self.sums().add(at), from.sums().add(at));
            }
        }
    }
}
