//! The lanes as four 128-bit registers.
#![allow(clippy::undocumented_unsafe_blocks)] // Every block calls an intrinsic; see `Neon`.

use super::vector::{LANES, Simd};
use half::{bf16, f16};
use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

/// NEON. Made by [`Neon::detect`] alone: who holds one knows that the CPU has it, which is the one condition of every
/// intrinsic called here that touches no memory.
#[derive(Clone, Copy)]
pub struct Neon {
    dotprod: bool,
}

/// Lanes of a register.
const QUARTER: usize = 4;

/// Lanes 0-3, 4-7, 8-11 and 12-15.
type V = [float32x4_t; LANES / QUARTER];

impl Neon {
    /// The proofs that this CPU has it, best first: with dot products of bytes, and without.
    pub(super) fn detect() -> Vec<Self> {
        let neon = is_aarch64_feature_detected!("neon");
        let dotprod = neon && is_aarch64_feature_detected!("dotprod");
        let all = [(Self { dotprod: true }, dotprod), (Self { dotprod: false }, neon)];
        all.into_iter().filter(|(_, found)| *found).map(|(neon, _)| neon).collect()
    }

    /// Returns whether the CPU has dot products of bytes, and kernels are to use them.
    pub(crate) fn has_dotprod(self) -> bool {
        self.dotprod
    }

    /// Returns the instruction set's name.
    pub(super) fn name(self) -> &'static str {
        if self.dotprod { "neon-dotprod" } else { "neon" }
    }

    #[inline(always)]
    fn registers(f: impl Fn(usize) -> float32x4_t) -> V {
        [f(0), f(1), f(2), f(3)]
    }

    /// `a` where it is greater than `b`, else `b`; the instruction for a maximum lets every NaN pass.
    #[inline(always)]
    fn greater(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
    }

    /// Returns the lanes rounded to bf16.
    #[inline(always)]
    fn rounded(v: float32x4_t) -> uint16x4_t {
        unsafe {
            let bits = vreinterpretq_u32_f32(v);
            let tie = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
            let rounded = vaddq_u32(bits, vaddq_u32(tie, vdupq_n_u32(0x7fff)));
            // A NaN stays one: its upper half with the quiet bit.
            let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
            vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(v, v), rounded, quiet))
        }
    }

    /// Returns a 4 x 4 transposition.
    #[inline(always)]
    fn transpose_quarter(v: [float32x4_t; QUARTER]) -> [float32x4_t; QUARTER] {
        unsafe {
            let pairs = |a, b| (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
            let ((even, odd), (even_after, odd_after)) = (pairs(v[0], v[1]), pairs(v[2], v[3]));
            [
                vreinterpretq_f32_f64(vtrn1q_f64(even, even_after)),
                vreinterpretq_f32_f64(vtrn1q_f64(odd, odd_after)),
                vreinterpretq_f32_f64(vtrn2q_f64(even, even_after)),
                vreinterpretq_f32_f64(vtrn2q_f64(odd, odd_after)),
            ]
        }
    }
}

impl Simd for Neon {
    type V = V;
    // 2 x 2 x 4 accumulators, 2 x 4 weights and a broadcast of 32 registers.
    const TILE_ROWS: usize = 2;
    const TILE_WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        Self::registers(|_| unsafe { vdupq_n_f32(x) })
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        Self::registers(|i| unsafe { vld1q_f32(from.add(i * QUARTER)) })
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        Self::registers(|i| unsafe {
            let bits = vmovl_u16(vld1_u16(from.add(i * QUARTER).cast()));
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(bits))
        })
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        Self::registers(|i| unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.add(i * QUARTER).cast()))) })
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u32) -> (V, V) {
        // SAFETY: the caller says that 16 pairs can be read.
        let pairs = |i| unsafe { vld1q_u32(from.add(i * QUARTER)) };
        let first = |i| unsafe { vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs(i))) };
        let second = |i| unsafe { vreinterpretq_f32_u32(vandq_u32(pairs(i), vdupq_n_u32(0xffff_0000))) };
        (Self::registers(first), Self::registers(second))
    }

    #[inline(always)]
    unsafe fn zip_bf16(self, first: *const bf16, second: *const bf16) -> V {
        // SAFETY: the caller says that 16 numbers can be read behind each.
        unsafe {
            let half = |from: *const bf16, at| vld1q_u16(from.add(at).cast());
            let (a, b) = (half(first, 0), half(second, 0));
            let (c, d) = (half(first, 2 * QUARTER), half(second, 2 * QUARTER));
            [vzip1q_u16(a, b), vzip2q_u16(a, b), vzip1q_u16(c, d), vzip2q_u16(c, d)].map(|v| vreinterpretq_f32_u16(v))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: V) {
        for (i, register) in v.into_iter().enumerate() {
            // SAFETY: the caller says that 16 numbers can be written.
            unsafe { vst1q_f32(to.add(i * QUARTER), register) };
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16, v: V) {
        for (i, register) in v.into_iter().enumerate() {
            // SAFETY: the caller says that 16 numbers can be written.
            unsafe { vst1_u16(to.add(i * QUARTER).cast(), Self::rounded(register)) };
        }
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        Self::registers(|i| unsafe { vaddq_f32(a[i], b[i]) })
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        Self::registers(|i| unsafe { vsubq_f32(a[i], b[i]) })
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        Self::registers(|i| unsafe { vmulq_f32(a[i], b[i]) })
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        Self::registers(|i| unsafe { vdivq_f32(a[i], b[i]) })
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        Self::registers(|i| unsafe { vfmaq_f32(c[i], a[i], b[i]) })
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        Self::registers(|i| Self::greater(a[i], b[i]))
    }

    #[inline(always)]
    fn zero_below(self, v: V, x: V, bound: V) -> V {
        Self::registers(|i| unsafe {
            vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v[i]), vcltq_f32(x[i], bound[i])))
        })
    }

    #[inline(always)]
    fn within(self, v: V, from: usize, to: usize, otherwise: f32) -> V {
        debug_assert!(from <= to && to <= LANES);
        const LANE: [u32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        Self::registers(|i| unsafe {
            let lane = vld1q_u32(LANE.as_ptr().add(i * QUARTER));
            let inside = vandq_u32(vcgeq_u32(lane, vdupq_n_u32(from as u32)), vcltq_u32(lane, vdupq_n_u32(to as u32)));
            vbslq_f32(inside, v[i], vdupq_n_f32(otherwise))
        })
    }

    #[inline(always)]
    fn scale(self, p: V, n: V) -> V {
        Self::registers(|i| unsafe {
            let exponent = vshlq_n_u32::<23>(vreinterpretq_u32_f32(n[i]));
            vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p[i]), exponent))
        })
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        unsafe {
            let v = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let v = vadd_f32(vget_low_f32(v), vget_high_f32(v));
            vget_lane_f32::<0>(v) + vget_lane_f32::<1>(v)
        }
    }

    #[inline(always)]
    fn largest(self, v: V) -> f32 {
        let v = Self::greater(Self::greater(v[0], v[2]), Self::greater(v[1], v[3]));
        unsafe {
            // What is behind the lanes that count is put before them, twice.
            let v = Self::greater(v, vextq_f32::<2>(v, v));
            vgetq_lane_f32::<0>(Self::greater(v, vextq_f32::<1>(v, v)))
        }
    }

    #[inline(always)]
    fn transpose(self, v: [V; LANES]) -> [V; LANES] {
        // Sixteen 4 x 4 squares, which change places.
        let mut t = v;
        for row in 0..QUARTER {
            for column in 0..QUARTER {
                let square = Self::transpose_quarter(std::array::from_fn(|i| v[row * QUARTER + i][column]));
                for (i, part) in square.into_iter().enumerate() {
                    t[column * QUARTER + i][row] = part;
                }
            }
        }
        t
    }
}
