//! The lanes as two 256-bit registers.
#![allow(clippy::undocumented_unsafe_blocks)] // Every block calls an intrinsic; see `Avx2`.

use super::vector::{LANES, Simd};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// AVX2. Made by [`Avx2::detect`] alone: who holds one knows that the CPU has AVX2, FMA and F16C, which is the one
/// condition of every intrinsic called here that touches no memory.
#[derive(Clone, Copy)]
pub struct Avx2 {
    _detected: (),
}

/// Lanes of a register.
const HALF: usize = LANES / 2;

/// Lanes 0-7 and 8-15.
type V = (__m256, __m256);

impl Avx2 {
    /// The proof, where this CPU has it.
    pub(super) fn detect() -> Option<Self> {
        let found =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        found.then_some(Self { _detected: () })
    }

    /// Returns the lanes rounded to bf16, in the lower half of each.
    #[inline(always)]
    fn rounded(v: __m256) -> __m256i {
        unsafe {
            let bits = _mm256_castps_si256(v);
            let tie = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff)));
            // A NaN stays one: its upper half with the quiet bit.
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
            _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan))
        }
    }

    /// Returns an 8 x 8 transposition.
    #[inline(always)]
    fn transpose_half(v: [__m256; HALF]) -> [__m256; HALF] {
        unsafe {
            let mut t = v;
            for i in 0..HALF / 2 {
                t[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
            }
            let mut u = t;
            for i in 0..HALF / 4 {
                let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
                u[4 * i] = _mm256_shuffle_ps::<0x44>(a, c);
                u[4 * i + 1] = _mm256_shuffle_ps::<0xee>(a, c);
                u[4 * i + 2] = _mm256_shuffle_ps::<0x44>(b, d);
                u[4 * i + 3] = _mm256_shuffle_ps::<0xee>(b, d);
            }
            for i in 0..HALF / 2 {
                t[i] = _mm256_permute2f128_ps::<0x20>(u[i], u[i + 4]);
                t[i + 4] = _mm256_permute2f128_ps::<0x31>(u[i], u[i + 4]);
            }
            t
        }
    }
}

impl Simd for Avx2 {
    type V = V;
    // 3 x 2 x 2 accumulators, 2 halves of a weight and a broadcast of 16 registers.
    const TILE_ROWS: usize = 3;
    const TILE_WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        unsafe { (_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        unsafe { (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(HALF))) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(HALF).cast()));
            (_mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        unsafe {
            (_mm256_cvtph_ps(_mm_loadu_si128(from.cast())), _mm256_cvtph_ps(_mm_loadu_si128(from.add(HALF).cast())))
        }
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u32) -> (V, V) {
        // SAFETY: the caller says that 16 pairs can be read.
        unsafe {
            let (low, high) = (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(HALF).cast()));
            let upper = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let first = (_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high));
            let second = (_mm256_and_si256(low, upper), _mm256_and_si256(high, upper));
            (
                (_mm256_castsi256_ps(first.0), _mm256_castsi256_ps(first.1)),
                (_mm256_castsi256_ps(second.0), _mm256_castsi256_ps(second.1)),
            )
        }
    }

    #[inline(always)]
    unsafe fn zip_bf16(self, first: *const bf16, second: *const bf16) -> V {
        // SAFETY: the caller says that 16 numbers can be read behind each.
        unsafe {
            let (a, b) = (_mm256_loadu_si256(first.cast()), _mm256_loadu_si256(second.cast()));
            // Pairs 0-3 and 8-11, then 4-7 and 12-15.
            let (low, high) = (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
            let whole = |v| _mm256_castsi256_ps(v);
            (whole(_mm256_permute2x128_si256::<0x20>(low, high)), whole(_mm256_permute2x128_si256::<0x31>(low, high)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: V) {
        // SAFETY: the caller says that 16 numbers can be written.
        unsafe {
            _mm256_storeu_ps(to, v.0);
            _mm256_storeu_ps(to.add(HALF), v.1);
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16, v: V) {
        // SAFETY: the caller says that 16 numbers can be written.
        unsafe {
            let (low, high) = (Self::rounded(v.0), Self::rounded(v.1));
            // The 16 bits of the lanes, in the order 0-3, 8-11, 4-7, 12-15.
            let packed = _mm256_packus_epi32(low, high);
            _mm256_storeu_si256(to.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        unsafe { (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        unsafe { (_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        unsafe { (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        unsafe { (_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        unsafe { (_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        unsafe { (_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn zero_below(self, v: V, x: V, bound: V) -> V {
        unsafe {
            (
                _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x.0, bound.0), v.0),
                _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x.1, bound.1), v.1),
            )
        }
    }

    #[inline(always)]
    fn within(self, v: V, from: usize, to: usize, otherwise: f32) -> V {
        debug_assert!(from <= to && to <= LANES);
        unsafe {
            let (before, end) = (_mm256_set1_epi32(from as i32 - 1), _mm256_set1_epi32(to as i32));
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let upper_lane = _mm256_add_epi32(lane, _mm256_set1_epi32(HALF as i32));
            let low = _mm256_and_si256(_mm256_cmpgt_epi32(lane, before), _mm256_cmpgt_epi32(end, lane));
            let high = _mm256_and_si256(_mm256_cmpgt_epi32(upper_lane, before), _mm256_cmpgt_epi32(end, upper_lane));
            let otherwise = _mm256_set1_ps(otherwise);
            (
                _mm256_blendv_ps(otherwise, v.0, _mm256_castsi256_ps(low)),
                _mm256_blendv_ps(otherwise, v.1, _mm256_castsi256_ps(high)),
            )
        }
    }

    #[inline(always)]
    fn scale(self, p: V, n: V) -> V {
        unsafe {
            let low = _mm256_slli_epi32::<23>(_mm256_castps_si256(n.0));
            let high = _mm256_slli_epi32::<23>(_mm256_castps_si256(n.1));
            (
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.0), low)),
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.1), high)),
            )
        }
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        unsafe {
            let v = _mm256_add_ps(v.0, v.1);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    fn largest(self, v: V) -> f32 {
        unsafe {
            let v = _mm256_max_ps(v.0, v.1);
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    fn transpose(self, v: [V; LANES]) -> [V; LANES] {
        // Four 8 x 8 quadrants, of which two change places.
        unsafe {
            let mut quadrants = [[_mm256_setzero_ps(); HALF]; 4];
            for i in 0..HALF {
                quadrants[0][i] = v[i].0;
                quadrants[1][i] = v[i + HALF].0;
                quadrants[2][i] = v[i].1;
                quadrants[3][i] = v[i + HALF].1;
            }
            let [a, b, c, d] = [
                Self::transpose_half(quadrants[0]),
                Self::transpose_half(quadrants[1]),
                Self::transpose_half(quadrants[2]),
                Self::transpose_half(quadrants[3]),
            ];
            let mut t = v;
            for i in 0..HALF {
                t[i] = (a[i], b[i]);
                t[i + HALF] = (c[i], d[i]);
            }
            t
        }
    }
}
