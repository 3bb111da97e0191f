//! Dot products of bytes on NEON. Weights and activations both have signs here; weights in 0..64 have none to lose.
#![allow(clippy::undocumented_unsafe_blocks)] // Every block calls intrinsics; see `Bytes`.

use super::super::block::Block;
use super::Dot;
use crate::cpu::simd::{Neon, Simd};
use std::arch::aarch64::*;
use std::arch::asm;

/// NEON, with dot products of bytes (the feature `dotprod`) or without. As with [`Simd`], a value is the proof
/// that the CPU has what it says, which is the one condition of every intrinsic called here that touches no
/// memory.
#[derive(Clone, Copy)]
pub(in super::super) struct Bytes<const DOTPROD: bool>(Neon);

impl Bytes<false> {
    /// Returns what every CPU with NEON has.
    pub(in super::super) fn of(s: Neon) -> Self {
        Self(s)
    }
}

impl Bytes<true> {
    /// The proof, where this CPU has dot products.
    pub(in super::super) fn with_dotprod(s: Neon) -> Option<Self> {
        s.has_dotprod().then_some(Self(s))
    }
}

/// What a register holds of 64 bytes, and of 16 sums.
const QUARTERS: usize = 4;

/// Adds the dot products of four neighbouring bytes.
#[inline]
#[target_feature(enable = "dotprod")]
fn sdot(mut sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {w:v}.16b, {x:v}.16b",
            sums = inout(vreg) sums, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// As [`sdot`], without the instruction: two products fit 16 bits each, and are added in 32.
#[inline(always)]
fn multiply_add(sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    unsafe {
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
        let high = vpaddlq_s16(vmull_high_s8(w, x));
        vaddq_s32(sums, vpaddq_s32(low, high))
    }
}

/// Four activations, over and over.
#[inline(always)]
fn repeated(x: [i8; 4]) -> int8x16_t {
    unsafe { vreinterpretq_s8_s32(vdupq_n_s32(i32::from_ne_bytes(x.map(|x| x as u8)))) }
}

/// 16 numbers of 8 bits, widened to 16.
#[inline(always)]
fn quarters(low: int16x8_t, high: int16x8_t) -> [float32x4_t; QUARTERS] {
    unsafe {
        [
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
            vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
            vcvtq_f32_s32(vmovl_high_s16(high)),
        ]
    }
}

impl<const DOTPROD: bool> Dot for Bytes<DOTPROD> {
    type S = Neon;
    type W = [uint8x16_t; QUARTERS];
    type I = [int32x4_t; QUARTERS];
    // 4 x 4 sums, 4 weights and a broadcast of 32 registers.
    const TILE: (usize, usize) = (4, 1);

    #[inline(always)]
    fn simd(self) -> Neon {
        self.0
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> Self::W {
        // SAFETY: as the caller says.
        unsafe { [vld1q_u8(from), vld1q_u8(from.add(16)), vld1q_u8(from.add(32)), vld1q_u8(from.add(48))] }
    }

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) from, options(nostack, readonly, preserves_flags)) };
    }

    #[inline(always)]
    fn nibbles(self, w: Self::W, which: usize) -> Self::W {
        w.map(|w| unsafe { if which == 0 { vandq_u8(w, vdupq_n_u8(15)) } else { vshrq_n_u8::<4>(w) } })
    }

    #[inline(always)]
    fn add_pairs(self, low: Self::W, pairs: Self::W, which: usize) -> Self::W {
        let mut all = low;
        for (all, pairs) in all.iter_mut().zip(pairs) {
            *all = unsafe {
                let pairs = match which {
                    0 => vshlq_n_u8::<4>(pairs),
                    1 => vshlq_n_u8::<2>(pairs),
                    2 => pairs,
                    _ => vshrq_n_u8::<2>(pairs),
                };
                vorrq_u8(*all, vandq_u8(pairs, vdupq_n_u8(48)))
            };
        }
        all
    }

    #[inline(always)]
    fn splat(self, x: i32) -> Self::I {
        [unsafe { vdupq_n_s32(x) }; QUARTERS]
    }

    #[inline(always)]
    fn start(self, _: &Block) -> Self::I {
        self.splat(0)
    }

    #[inline(always)]
    fn dot<const SIGNED: bool>(self, sums: Self::I, w: Self::W, x: [i8; 4]) -> Self::I {
        let (mut sums, x) = (sums, repeated(x));
        for (sum, w) in sums.iter_mut().zip(w) {
            *sum = unsafe {
                let w = vreinterpretq_s8_u8(w);
                if DOTPROD { sdot(*sum, w, x) } else { multiply_add(*sum, w, x) }
            };
        }
        sums
    }

    #[inline(always)]
    fn widen(self, sums: Self::I) -> <Neon as Simd>::V {
        sums.map(|sums| unsafe { vcvtq_f32_s32(sums) })
    }

    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8) -> <Neon as Simd>::V {
        // SAFETY: as the caller says.
        unsafe {
            let bytes = vld1q_u8(from);
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
            quarters(vreinterpretq_s16_u16(low), vreinterpretq_s16_u16(high))
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> <Neon as Simd>::V {
        // SAFETY: as the caller says.
        unsafe {
            let bytes = vld1q_s8(from);
            quarters(vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes))
        }
    }
}
