//! The lanes as an array: for CPUs without AVX2, and the definition of what the others compute.

use super::vector::{LANES, Simd};
use half::{bf16, f16};

/// Plain Rust.
#[derive(Clone, Copy)]
pub struct Plain;

type V = [f32; LANES];

impl Plain {
    /// `f` of each lane.
    #[inline(always)]
    fn lanes(f: impl Fn(usize) -> f32) -> V {
        let mut v = [0.0; LANES];
        // Not by an iterator, which Miri takes several times as long for.
        let mut i = 0;
        while i < LANES {
            v[i] = f(i);
            i += 1;
        }
        v
    }

    #[inline(always)]
    fn fold(v: V, f: impl Fn(f32, f32) -> f32) -> f32 {
        let mut v = v;
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                v[i] = f(v[i], v[i + half]);
            }
            half /= 2;
        }
        v[0]
    }

    #[inline(always)]
    fn greater(a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }
}

impl Simd for Plain {
    type V = V;
    const TILE_ROWS: usize = 2;
    const TILE_WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        unsafe { from.cast::<V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        Self::lanes(|i| f32::from_bits(u32::from(bits[i]) << 16))
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> V {
        // SAFETY: the caller says that 16 numbers can be read.
        let halves = unsafe { from.cast::<[f16; LANES]>().read_unaligned() };
        Self::lanes(|i| halves[i].to_f32())
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u32) -> (V, V) {
        // SAFETY: the caller says that 16 pairs can be read.
        let pairs = unsafe { from.cast::<[u32; LANES]>().read_unaligned() };
        (Self::lanes(|i| f32::from_bits(pairs[i] << 16)), Self::lanes(|i| f32::from_bits(pairs[i] & 0xffff_0000)))
    }

    #[inline(always)]
    unsafe fn zip_bf16(self, first: *const bf16, second: *const bf16) -> V {
        // SAFETY: the caller says that 16 numbers can be read behind each.
        let [first, second] = [first, second].map(|from| unsafe { from.cast::<[u16; LANES]>().read_unaligned() });
        Self::lanes(|i| f32::from_bits(u32::from(second[i]) << 16 | u32::from(first[i])))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: V) {
        // SAFETY: the caller says that 16 numbers can be written.
        unsafe { to.cast::<V>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16, v: V) {
        // SAFETY: the caller says that 16 numbers can be written.
        unsafe { to.cast::<[bf16; LANES]>().write_unaligned(v.map(bf16::from_f32)) }
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        Self::lanes(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        Self::lanes(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        Self::lanes(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        Self::lanes(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        Self::lanes(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        Self::lanes(|i| Self::greater(a[i], b[i]))
    }

    #[inline(always)]
    fn zero_below(self, v: V, x: V, bound: V) -> V {
        Self::lanes(|i| if x[i] < bound[i] { 0.0 } else { v[i] })
    }

    #[inline(always)]
    fn within(self, v: V, from: usize, to: usize, otherwise: f32) -> V {
        Self::lanes(|i| if (from..to).contains(&i) { v[i] } else { otherwise })
    }

    #[inline(always)]
    fn scale(self, p: V, n: V) -> V {
        Self::lanes(|i| f32::from_bits(p[i].to_bits().wrapping_add(n[i].to_bits() << 23)))
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        Self::fold(v, |a, b| a + b)
    }

    #[inline(always)]
    fn largest(self, v: V) -> f32 {
        Self::fold(v, Self::greater)
    }

    #[inline(always)]
    fn transpose(self, v: [V; LANES]) -> [V; LANES] {
        let mut t = v;
        for (i, row) in v.iter().enumerate() {
            for (j, lane) in row.iter().enumerate() {
                t[j][i] = *lane;
            }
        }
        t
    }
}
