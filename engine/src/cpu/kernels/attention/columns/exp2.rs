//! Powers of 2, for weights.

use std::arch::x86_64::*;

/// `2^x` with a relative error under 4e-6, far below what rounding to bf16 leaves; 1 for 0, exactly zero for minus
/// infinity, NaN for NaN.
///
/// Source: what is above the next lower integer goes through a polynomial by the exchange algorithm of Remez,
/// exact for 0.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn exp2(x: __m512) -> __m512 {
    /// Of `_mm512_reduce_ps`: what is left above the integer below; no exception.
    const ABOVE_FLOOR: i32 = 0b1001;
    let above = _mm512_reduce_ps::<ABOVE_FLOOR>(x);
    let mut power = _mm512_set1_ps(0.013_426_684);
    for coefficient in [0.052_242_473, 0.241_280_2, 0.693_044_84, 1.0] {
        power = _mm512_fmadd_ps(power, above, _mm512_set1_ps(coefficient));
    }
    _mm512_scalef_ps(power, x)
}
