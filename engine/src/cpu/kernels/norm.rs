//! RMS norm of one row.

use super::dispatch;
use crate::cpu::simd::{LANES, Simd};

/// One row: `x += add * add_scale; out = x / sqrt(mean(x^2) + eps) * weight`.
pub(in crate::cpu) struct RmsNorm {
    /// The row, `width` numbers.
    pub(in crate::cpu) x: *mut f32,
    /// Added to the row first; null for none.
    pub(in crate::cpu) add: *const f32,
    /// Multiplies what is added.
    pub(in crate::cpu) add_scale: f32,
    /// The weights; null: `out` is `x`.
    pub(in crate::cpu) weight: *const f32,
    /// The result; may be `x` or `add`.
    pub(in crate::cpu) out: *mut f32,
    /// Numbers in the row.
    pub(in crate::cpu) width: usize,
    /// Added to the mean square.
    pub(in crate::cpu) eps: f32,
}

dispatch! {
    /// Norms.
    ///
    /// # Safety
    /// `width` numbers can be read behind every pointer that is not null and written behind `x` (if there is something
    /// to add) and `out`; nobody else uses those two meanwhile.
    fn rms_norm(RmsNorm) = norm, plain numbers
}

#[inline(always)]
unsafe fn norm<S: Simd>(s: S, n: &RmsNorm) {
    let (whole, rest) = (n.width / LANES * LANES, n.width % LANES);
    let mut squares = s.splat(0.0);
    let add_scale = s.splat(n.add_scale);
    // SAFETY: all accesses are below `width`.
    unsafe {
        let mut i = 0;
        while i < whole {
            let mut x = s.load(n.x.add(i));
            if !n.add.is_null() {
                x = s.fma(s.load(n.add.add(i)), add_scale, x);
                s.store(n.x.add(i), x);
            }
            squares = s.fma(x, x, squares);
            i += LANES;
        }
        if rest > 0 {
            let mut x = s.load_part(n.x.add(whole).cast_const(), rest);
            if !n.add.is_null() {
                x = s.fma(s.load_part(n.add.add(whole), rest), add_scale, x);
                s.store_part(n.x.add(whole), x, rest);
            }
            squares = s.fma(x, x, squares);
        }
        if n.weight.is_null() {
            n.out.copy_from(n.x, n.width);
            return;
        }
        let scale = s.splat(1.0 / (s.sum(squares) / n.width as f32 + n.eps).sqrt());
        let mut i = 0;
        while i < whole {
            let x = s.mul(s.load(n.x.add(i)), scale);
            s.store(n.out.add(i), s.mul(x, s.load(n.weight.add(i))));
            i += LANES;
        }
        if rest > 0 {
            let x = s.mul(s.load_part(n.x.add(whole).cast_const(), rest), scale);
            s.store_part(n.out.add(whole), s.mul(x, s.load_part(n.weight.add(whole), rest)), rest);
        }
    }
}
