//! Dot products of bytes on each instruction set: four weights of each of 16 outputs at a time, with the same four
//! activations.
//!
//! All of them compute the same integers. Weights in -128..=127 or 0..64, activations in -127..=127 and 32 inputs
//! overflow nothing.

#[cfg(target_arch = "aarch64")]
mod arm;

use super::block::Block;
use crate::cpu::simd::{LANES, Plain, Simd};
#[cfg(target_arch = "aarch64")]
pub(super) use arm::Bytes;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::Vnni;

/// An instruction set with these operations. As with [`Simd`], a value is the proof that the CPU has it.
pub(super) trait Dot: Copy {
    /// Its vectors of f32.
    type S: Simd;
    /// 64 bytes: four weights of each of 16 outputs.
    type W: Copy;
    /// 16 sums.
    type I: Copy;

    /// Rows of a register tile, 6 at most, and its vectors of 16 outputs: 1, 2 or 4.
    const TILE: (usize, usize);

    /// Returns the operations on f32.
    fn simd(self) -> Self::S;

    /// 64 bytes.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn load(self, from: *const u8) -> Self::W;

    /// Says that the 64 bytes at this address will be read soon. They need not exist.
    fn prefetch(self, from: *const u8);

    /// Returns the low (0) or high (1) halves of the bytes.
    fn nibbles(self, w: Self::W, which: usize) -> Self::W;

    /// `low + 16 * p`, where `p` are the bits `2 * which` and `2 * which + 1` of the bytes.
    fn add_pairs(self, low: Self::W, pairs: Self::W, which: usize) -> Self::W;

    /// Returns all sums `x`.
    fn splat(self, x: i32) -> Self::I;

    /// Returns what sums of products with signed weights begin at.
    fn start(self, x: &Block) -> Self::I;

    /// Adds four products to each sum; the weights are signed, or in 0..64.
    fn dot<const SIGNED: bool>(self, sums: Self::I, w: Self::W, x: [i8; 4]) -> Self::I;

    /// The sums as f32; they are small enough to be exact.
    fn widen(self, sums: Self::I) -> <Self::S as Simd>::V;

    /// 16 numbers in 0..=255, widened.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn load_u8(self, from: *const u8) -> <Self::S as Simd>::V;

    /// 16 numbers in -128..=127, widened.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn load_i8(self, from: *const i8) -> <Self::S as Simd>::V;
}

/// `f` of each byte of plain Rust. Not by an iterator, which Miri takes several times as long for; so below.
#[inline(always)]
fn bytes(f: impl Fn(usize) -> u8) -> [u8; 4 * LANES] {
    let mut bytes = [0; 4 * LANES];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = f(i);
        i += 1;
    }
    bytes
}

impl Dot for Plain {
    type S = Plain;
    type W = [u8; 4 * LANES];
    type I = [i32; LANES];
    const TILE: (usize, usize) = (1, 1);

    fn simd(self) -> Plain {
        self
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> Self::W {
        // SAFETY: as the caller says.
        unsafe { from.cast::<Self::W>().read() }
    }

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}

    #[inline(always)]
    fn nibbles(self, w: Self::W, which: usize) -> Self::W {
        bytes(|i| w[i] >> (4 * which) & 15)
    }

    #[inline(always)]
    fn add_pairs(self, low: Self::W, pairs: Self::W, which: usize) -> Self::W {
        bytes(|i| low[i] | (pairs[i] >> (2 * which) & 3) << 4)
    }

    #[inline(always)]
    fn splat(self, x: i32) -> Self::I {
        [x; LANES]
    }

    #[inline(always)]
    fn start(self, _: &Block) -> Self::I {
        [0; LANES]
    }

    #[inline(always)]
    fn dot<const SIGNED: bool>(self, sums: Self::I, w: Self::W, x: [i8; 4]) -> Self::I {
        let mut sums = sums;
        let mut i = 0;
        while i < w.len() {
            let w = if SIGNED { i32::from(w[i] as i8) } else { i32::from(w[i]) };
            sums[i / 4] += w * i32::from(x[i % 4]);
            i += 1;
        }
        sums
    }

    #[inline(always)]
    fn widen(self, sums: Self::I) -> [f32; LANES] {
        sums.map(|sum| sum as f32)
    }

    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8) -> [f32; LANES] {
        // SAFETY: as the caller says.
        unsafe { from.cast::<[u8; LANES]>().read() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> [f32; LANES] {
        // SAFETY: as the caller says.
        unsafe { from.cast::<[i8; LANES]>().read() }.map(f32::from)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(clippy::undocumented_unsafe_blocks)] // Every block calls intrinsics; see `Vnni` and `Avx2`.

    use super::super::block::Block;
    use super::Dot;
    use crate::cpu::simd::{Avx2, Avx512, Avx512Level, LANES};
    use std::arch::x86_64::*;

    /// AVX-512 with BW and VNNI, which is the one condition of every intrinsic called here that touches no memory.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Vnni(Avx512);

    impl Vnni {
        /// The proof, where this CPU has it.
        pub(in super::super) fn of(s: Avx512) -> Option<Self> {
            s.has(Avx512Level::Vnni).then_some(Self(s))
        }

        /// Returns whether the CPU has the tiles of AMX, too.
        pub(in super::super) fn has_tiles(self) -> bool {
            self.0.has(Avx512Level::Amx)
        }
    }

    impl Dot for Vnni {
        type S = Avx512;
        type W = __m512i;
        type I = __m512i;
        // 24 sums, 4 weights, activations and masks.
        const TILE: (usize, usize) = (6, 4);

        #[inline(always)]
        fn simd(self) -> Avx512 {
            self.0
        }

        #[inline(always)]
        unsafe fn load(self, from: *const u8) -> __m512i {
            // SAFETY: as the caller says.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline(always)]
        fn prefetch(self, from: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
        }

        #[inline(always)]
        fn nibbles(self, w: __m512i, which: usize) -> __m512i {
            unsafe {
                let halves = if which == 0 { w } else { _mm512_srli_epi16::<4>(w) };
                _mm512_and_si512(halves, _mm512_set1_epi8(15))
            }
        }

        #[inline(always)]
        fn add_pairs(self, low: __m512i, pairs: __m512i, which: usize) -> __m512i {
            unsafe {
                let pairs = match which {
                    0 => _mm512_slli_epi16::<4>(pairs),
                    1 => _mm512_slli_epi16::<2>(pairs),
                    2 => pairs,
                    _ => _mm512_srli_epi16::<2>(pairs),
                };
                _mm512_or_si512(low, _mm512_and_si512(pairs, _mm512_set1_epi8(48)))
            }
        }

        #[inline(always)]
        fn splat(self, x: i32) -> __m512i {
            unsafe { _mm512_set1_epi32(x) }
        }

        #[inline(always)]
        fn start(self, x: &Block) -> __m512i {
            self.splat(x.bytes)
        }

        /// The instruction takes weights without a sign: 128 is added to those that have one.
        #[inline(always)]
        fn dot<const SIGNED: bool>(self, sums: __m512i, w: __m512i, x: [i8; 4]) -> __m512i {
            unsafe {
                let w = if SIGNED { _mm512_xor_si512(w, _mm512_set1_epi8(-128)) } else { w };
                _mm512_dpbusd_epi32(sums, w, _mm512_set1_epi32(i32::from_ne_bytes(x.map(|x| x as u8))))
            }
        }

        #[inline(always)]
        fn widen(self, sums: __m512i) -> __m512 {
            unsafe { _mm512_cvtepi32_ps(sums) }
        }

        #[inline(always)]
        unsafe fn load_u8(self, from: *const u8) -> __m512 {
            // SAFETY: as the caller says.
            unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
        }

        #[inline(always)]
        unsafe fn load_i8(self, from: *const i8) -> __m512 {
            // SAFETY: as the caller says.
            unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
        }
    }

    /// Both halves of what AVX-512 has in one register.
    type Two = (__m256i, __m256i);

    impl Dot for Avx2 {
        type S = Avx2;
        type W = Two;
        type I = Two;
        // 8 registers of sums of 16.
        const TILE: (usize, usize) = (4, 1);

        #[inline(always)]
        fn simd(self) -> Avx2 {
            self
        }

        #[inline(always)]
        unsafe fn load(self, from: *const u8) -> Two {
            // SAFETY: as the caller says.
            unsafe { (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())) }
        }

        #[inline(always)]
        fn prefetch(self, from: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
        }

        #[inline(always)]
        fn nibbles(self, w: Two, which: usize) -> Two {
            let half = |w| unsafe {
                let halves = if which == 0 { w } else { _mm256_srli_epi16::<4>(w) };
                _mm256_and_si256(halves, _mm256_set1_epi8(15))
            };
            (half(w.0), half(w.1))
        }

        #[inline(always)]
        fn add_pairs(self, low: Two, pairs: Two, which: usize) -> Two {
            let half = |low, pairs| unsafe {
                let pairs = match which {
                    0 => _mm256_slli_epi16::<4>(pairs),
                    1 => _mm256_slli_epi16::<2>(pairs),
                    2 => pairs,
                    _ => _mm256_srli_epi16::<2>(pairs),
                };
                _mm256_or_si256(low, _mm256_and_si256(pairs, _mm256_set1_epi8(48)))
            };
            (half(low.0, pairs.0), half(low.1, pairs.1))
        }

        #[inline(always)]
        fn splat(self, x: i32) -> Two {
            let all = unsafe { _mm256_set1_epi32(x) };
            (all, all)
        }

        #[inline(always)]
        fn start(self, _: &Block) -> Two {
            self.splat(0)
        }

        /// The instruction takes weights without a sign: that of the weights goes to the activations. Two products
        /// fit 16 bits.
        #[inline(always)]
        fn dot<const SIGNED: bool>(self, sums: Two, w: Two, x: [i8; 4]) -> Two {
            let half = |sums, w| unsafe {
                let x = _mm256_set1_epi32(i32::from_ne_bytes(x.map(|x| x as u8)));
                let (w, x) = if SIGNED { (_mm256_sign_epi8(w, w), _mm256_sign_epi8(x, w)) } else { (w, x) };
                _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)))
            };
            (half(sums.0, w.0), half(sums.1, w.1))
        }

        #[inline(always)]
        fn widen(self, sums: Two) -> (__m256, __m256) {
            unsafe { (_mm256_cvtepi32_ps(sums.0), _mm256_cvtepi32_ps(sums.1)) }
        }

        #[inline(always)]
        unsafe fn load_u8(self, from: *const u8) -> (__m256, __m256) {
            // SAFETY: as the caller says.
            unsafe {
                let half = |at| _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(at).cast()));
                self.widen((half(0), half(LANES / 2)))
            }
        }

        #[inline(always)]
        unsafe fn load_i8(self, from: *const i8) -> (__m256, __m256) {
            // SAFETY: as the caller says.
            unsafe {
                let half = |at| _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(at).cast()));
                self.widen((half(0), half(LANES / 2)))
            }
        }
    }
}
