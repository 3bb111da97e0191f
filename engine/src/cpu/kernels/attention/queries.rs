//! Queries as two numbers of bf16 each: rounded, and what that left out, rounded. So scores with keys of bf16 are
//! as exact as with queries of f32, where a rounded query would be off by as much as a large score is large.

use crate::cpu::kernels::dispatch;
use crate::cpu::simd::{LANES, Number, Simd};
use half::bf16;

/// A query and where its two parts go.
pub(super) struct Split {
    /// The query.
    pub(super) x: *const f32,
    /// Its numbers.
    pub(super) count: usize,
    /// What they are multiplied with before.
    pub(super) scale: f32,
    /// Numbers of each part, a multiple of 16: `count` and zeros.
    pub(super) padded: usize,
    /// The rounded query.
    pub(super) rounded: *mut bf16,
    /// The rest.
    pub(super) rest: *mut bf16,
}

dispatch! {
    /// Splits.
    ///
    /// # Safety
    /// `count` numbers can be read behind `x`, `padded` written behind each part, and nobody else uses those.
    fn split(Split) = split_all, plain numbers
}

#[inline(always)]
unsafe fn split_all<S: Simd>(s: S, p: &Split) {
    for i in (0..p.padded).step_by(LANES) {
        // SAFETY: `i + 16` is at most `padded`, and what is loaded is below `count`.
        unsafe {
            let x = match p.count.saturating_sub(i) {
                0 => s.splat(0.0),
                numbers if numbers < LANES => s.load_part(p.x.add(i), numbers),
                _ => s.load(p.x.add(i)),
            };
            let x = s.mul(x, s.splat(p.scale));
            s.store_bf16(p.rounded.add(i), x);
            s.store_bf16(p.rest.add(i), s.sub(x, bf16::load(s, p.rounded.add(i))));
        }
    }
}
