//! What a vector of 16 lanes can do, and what it is loaded from.

use half::{bf16, f16};

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Operations on 16 lanes.
pub(crate) trait Simd: Copy {
    /// A vector.
    type V: Copy;

    /// Rows of a register tile of the linear kernel, 6 at most: as many as the registers hold.
    const TILE_ROWS: usize;
    /// Whether such a tile is 4 vectors wide, or 2.
    const TILE_WIDE: bool;

    /// Returns all lanes `x`.
    fn splat(self, x: f32) -> Self::V;

    /// 16 numbers.
    ///
    /// # Safety
    /// They can be read; no alignment is needed. So for the other loads.
    unsafe fn load(self, from: *const f32) -> Self::V;

    /// 16 numbers, widened.
    ///
    /// # Safety
    /// See [`Simd::load`].
    unsafe fn load_bf16(self, from: *const bf16) -> Self::V;

    /// 16 numbers, widened.
    ///
    /// # Safety
    /// See [`Simd::load`].
    unsafe fn load_f16(self, from: *const f16) -> Self::V;

    /// 16 pairs of bf16, widened: the first of each pair, and the second.
    ///
    /// # Safety
    /// See [`Simd::load`].
    unsafe fn load_pairs(self, from: *const u32) -> (Self::V, Self::V);

    /// Returns the bits of 16 pairs of bf16: the first of each out of `first`, the other out of `second`.
    ///
    /// # Safety
    /// See [`Simd::load`].
    unsafe fn zip_bf16(self, first: *const bf16, second: *const bf16) -> Self::V;

    /// Writes 16 numbers.
    ///
    /// # Safety
    /// They can be written; no alignment is needed.
    unsafe fn store(self, to: *mut f32, v: Self::V);

    /// Writes 16 numbers, each rounded to the nearest bf16, ties to even.
    ///
    /// # Safety
    /// See [`Simd::store`].
    unsafe fn store_bf16(self, to: *mut bf16, v: Self::V);

    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a` where it is greater than `b`, else (and where either is NaN) `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// Zero where `x < bound`, else `v`.
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V;
    /// `v` in the lanes `from..to`, `otherwise` in the rest.
    fn within(self, v: Self::V, from: usize, to: usize, otherwise: f32) -> Self::V;
    /// `p * 2^n`, where the low bits of `n` as an integer are those of the exponent to add, and the result is normal.
    fn scale(self, p: Self::V, n: Self::V) -> Self::V;
    /// Sum of the lanes: halves are added to each other until one lane is left.
    fn sum(self, v: Self::V) -> f32;
    /// Largest lane, folded like [`Simd::sum`].
    fn largest(self, v: Self::V) -> f32;
    /// Lane 0.
    #[inline(always)]
    fn first(self, v: Self::V) -> f32 {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the array has 16 numbers.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        lanes[0]
    }
    /// Swaps lanes and vectors.
    fn transpose(self, v: [Self::V; LANES]) -> [Self::V; LANES];

    /// Returns the first `n < 16` numbers; the other lanes are zero.
    ///
    /// # Safety
    /// `n` numbers can be read.
    #[inline(always)]
    unsafe fn load_part<N: Number>(self, from: *const N, n: usize) -> Self::V {
        debug_assert!(n < LANES);
        let mut lanes = [0.0; LANES];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: `i < n`, and the caller says that `n` numbers can be read.
            *lane = unsafe { from.add(i).read() }.widen();
        }
        // SAFETY: the array has 16 numbers.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// Writes the first `n < 16` lanes.
    ///
    /// # Safety
    /// `n` numbers can be written.
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, v: Self::V, n: usize) {
        debug_assert!(n < LANES);
        let mut lanes = [0.0; LANES];
        // SAFETY: the array has 16 numbers.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        for (i, lane) in lanes.iter().enumerate().take(n) {
            // SAFETY: `i < n`, and the caller says that `n` numbers can be written.
            unsafe { to.add(i).write(*lane) };
        }
    }

    /// `e^x` with a relative error under 1.2e-7; exactly zero below [`EXP_MIN`], that of [`EXP_MAX`] above it, NaN
    /// for NaN.
    ///
    /// Source: Cephes, `expf`: `x = n ln 2 + r`, a polynomial of degree 7 in `r`, and `n` into the exponent.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        // In this order of operands the bounds let a NaN pass.
        let bounded = self.max(self.splat(EXP_MIN), x);
        let bounded = self.sub(self.splat(0.0), self.max(self.splat(-EXP_MAX), self.sub(self.splat(0.0), bounded)));
        // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
        let magic = self.splat(12_582_912.0);
        let n_magic = self.fma(bounded, self.splat(std::f32::consts::LOG2_E), magic);
        let n = self.sub(n_magic, magic);
        let r = self.fma(n, self.splat(-355.0 / 512.0), bounded);
        let r = self.fma(n, self.splat(2.121_944_4e-4), r);
        let mut p = self.splat(1.987_569_1e-4);
        for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = self.fma(p, r, self.splat(coefficient));
        }
        let p = self.fma(p, self.mul(r, r), self.add(r, self.splat(1.0)));
        self.zero_below(self.scale(p, n_magic), x, self.splat(EXP_MIN))
    }

    /// `cap * tanh(x / cap)` for a positive `cap`, with an absolute error under `cap * 3e-7`; NaN for NaN.
    #[inline(always)]
    fn soft_cap(self, x: Self::V, cap: f32) -> Self::V {
        // tanh(y) = 1 - 2 / (e^2y + 1)
        let e = self.exp(self.mul(x, self.splat(2.0 / cap)));
        let rest = self.div(self.splat(2.0 * cap), self.add(e, self.splat(1.0)));
        self.sub(self.splat(cap), rest)
    }
}

/// Smallest argument of [`Simd::exp`] whose result is not zero; `e^-87` is normal.
pub(crate) const EXP_MIN: f32 = -87.0;
/// Largest argument of [`Simd::exp`] that counts; `e^88` is finite.
pub(crate) const EXP_MAX: f32 = 88.0;

/// Number formats of weights and KV: what a vector can be loaded from.
pub(crate) trait Number: Copy {
    /// 16 of them, widened.
    ///
    /// # Safety
    /// See [`Simd::load`].
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::V;

    /// One of them, widened.
    fn widen(self) -> f32;

    /// Returns the nearest one, ties to even.
    fn narrow(x: f32) -> Self;
}

impl Number for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::V {
        // SAFETY: as the caller says.
        unsafe { s.load(from) }
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        x
    }
}

impl Number for bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::V {
        // SAFETY: as the caller says.
        unsafe { s.load_bf16(from) }
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        bf16::from_f32(x)
    }
}

impl Number for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::V {
        // SAFETY: as the caller says.
        unsafe { s.load_f16(from) }
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        f16::from_f32(x)
    }
}
