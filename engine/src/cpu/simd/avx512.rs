//! The lanes as one 512-bit register.
#![allow(clippy::undocumented_unsafe_blocks)] // Every block calls an intrinsic; see `Avx512`.

use super::avx2::Avx2;
use super::vector::{LANES, Simd};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// AVX-512 of some level. Made by [`Avx512::detect`] alone: who holds one knows that the CPU has what its level
/// says and AVX-512 F, AVX2, FMA and F16C, which is the one condition of every intrinsic called here that touches
/// no memory.
#[derive(Clone, Copy)]
pub struct Avx512 {
    level: Avx512Level,
}

/// What a CPU has beside AVX-512 F; each level has what those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Avx512Level {
    /// Nothing.
    Base,
    /// BW, DQ, VL, and dot products of bytes (VNNI).
    Vnni,
    /// Dot products of bf16.
    Bf16,
    /// Tiles (AMX) and their products of bf16 and of bytes.
    Amx,
}

impl Avx512 {
    /// The proofs for the levels that this CPU has, best first.
    pub(super) fn detect() -> Vec<Self> {
        let base = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let vnni = base
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        let bf16 = vnni && is_x86_feature_detected!("avx512bf16");
        let amx = bf16 && super::amx::permitted();
        let levels =
            [(Avx512Level::Amx, amx), (Avx512Level::Bf16, bf16), (Avx512Level::Vnni, vnni), (Avx512Level::Base, base)];
        levels.into_iter().filter(|(_, found)| *found).map(|(level, _)| Self { level }).collect()
    }

    /// Returns whether the CPU has what `level` says, and may use it.
    pub(crate) fn has(self, level: Avx512Level) -> bool {
        self.level >= level
    }

    /// The proof for AVX2, which every level asks for.
    pub(crate) fn avx2(self) -> Avx2 {
        Avx2::detect().expect("AVX2 was there when AVX-512 was detected")
    }

    /// Returns the level's name.
    pub(super) fn name(self) -> &'static str {
        match self.level {
            Avx512Level::Base => "avx512",
            Avx512Level::Vnni => "avx512-vnni",
            Avx512Level::Bf16 => "avx512-bf16",
            Avx512Level::Amx => "amx",
        }
    }

    /// Returns the two halves.
    #[inline(always)]
    fn halves(v: __m512) -> (__m256, __m256) {
        unsafe {
            let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v));
            (_mm512_castps512_ps256(v), _mm256_castpd_ps(high))
        }
    }
}

impl Simd for Avx512 {
    type V = __m512;
    // 6 x 4 accumulators, 4 weights and a broadcast of 32 registers.
    const TILE_ROWS: usize = 6;
    const TILE_WIDE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller says that 16 numbers can be read.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> __m512 {
        // SAFETY: the caller says that 16 numbers can be read.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> __m512 {
        // SAFETY: the caller says that 16 numbers can be read.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u32) -> (__m512, __m512) {
        // SAFETY: the caller says that 16 pairs can be read.
        unsafe {
            let pairs = _mm512_loadu_si512(from.cast());
            let second = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(second))
        }
    }

    #[inline(always)]
    unsafe fn zip_bf16(self, first: *const bf16, second: *const bf16) -> __m512 {
        // SAFETY: the caller says that 16 numbers can be read behind each.
        unsafe {
            let first = _mm512_cvtepu16_epi32(_mm256_loadu_si256(first.cast()));
            let second = _mm512_cvtepu16_epi32(_mm256_loadu_si256(second.cast()));
            _mm512_castsi512_ps(_mm512_or_si512(_mm512_slli_epi32::<16>(second), first))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        // SAFETY: the caller says that 16 numbers can be written.
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16, v: __m512) {
        // SAFETY: the caller says that 16 numbers can be written.
        unsafe {
            let bits = _mm512_castps_si512(v);
            let tie = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(tie, _mm512_set1_epi32(0x7fff)));
            // A NaN stays one: its upper half with the quiet bit.
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x40_0000));
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded)));
        }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn zero_below(self, v: __m512, x: __m512, bound: __m512) -> __m512 {
        unsafe {
            let below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, bound);
            _mm512_mask_mov_ps(v, below, _mm512_setzero_ps())
        }
    }

    #[inline(always)]
    fn within(self, v: __m512, from: usize, to: usize, otherwise: f32) -> __m512 {
        debug_assert!(from <= to && to <= LANES);
        let inside = ((1u32 << to) - (1u32 << from)) as u16;
        unsafe { _mm512_mask_mov_ps(_mm512_set1_ps(otherwise), inside, v) }
    }

    #[inline(always)]
    fn scale(self, p: __m512, n: __m512) -> __m512 {
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent))
        }
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        let (low, high) = Self::halves(v);
        unsafe {
            let v = _mm256_add_ps(low, high);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    fn largest(self, v: __m512) -> f32 {
        let (low, high) = Self::halves(v);
        unsafe {
            let v = _mm256_max_ps(low, high);
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    fn transpose(self, v: [__m512; LANES]) -> [__m512; LANES] {
        // Pairs of lanes, then quadruples, inside each 128-bit part; then whole parts twice.
        unsafe {
            let mut t = v;
            for i in 0..LANES / 2 {
                t[2 * i] = _mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]);
            }
            let mut u = t;
            for i in 0..LANES / 4 {
                let (a, b) = (_mm512_castps_pd(t[4 * i]), _mm512_castps_pd(t[4 * i + 1]));
                let (c, d) = (_mm512_castps_pd(t[4 * i + 2]), _mm512_castps_pd(t[4 * i + 3]));
                u[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
                u[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
                u[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
                u[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
            }
            for i in 0..4 {
                t[i] = _mm512_shuffle_f32x4::<0x88>(u[i], u[i + 4]);
                t[i + 4] = _mm512_shuffle_f32x4::<0xdd>(u[i], u[i + 4]);
                t[i + 8] = _mm512_shuffle_f32x4::<0x88>(u[i + 8], u[i + 12]);
                t[i + 12] = _mm512_shuffle_f32x4::<0xdd>(u[i + 8], u[i + 12]);
            }
            for i in 0..4 {
                u[i] = _mm512_shuffle_f32x4::<0x88>(t[i], t[i + 8]);
                u[i + 4] = _mm512_shuffle_f32x4::<0x88>(t[i + 4], t[i + 12]);
                u[i + 8] = _mm512_shuffle_f32x4::<0xdd>(t[i], t[i + 8]);
                u[i + 12] = _mm512_shuffle_f32x4::<0xdd>(t[i + 4], t[i + 12]);
            }
            u
        }
    }
}
