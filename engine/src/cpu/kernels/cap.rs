//! Scale and soft cap of one row.

use super::dispatch;
use crate::cpu::simd::{LANES, Simd};

/// One row, in place: `x = soft_cap(x * scale)`.
pub(in crate::cpu) struct CapRow {
    /// The row.
    pub(in crate::cpu) x: *mut f32,
    /// Numbers in it.
    pub(in crate::cpu) width: usize,
    /// Multiplies them.
    pub(in crate::cpu) scale: f32,
    /// What [`Simd::soft_cap`] bounds them by.
    pub(in crate::cpu) cap: Option<f32>,
}

dispatch! {
    /// Scales and caps.
    ///
    /// # Safety
    /// `width` numbers can be read and written behind `x`, and nobody else uses them.
    fn cap_row(CapRow) = cap, plain numbers
}

#[inline(always)]
unsafe fn cap<S: Simd>(s: S, c: &CapRow) {
    let (whole, rest) = (c.width / LANES * LANES, c.width % LANES);
    // SAFETY: all accesses are below `width`.
    unsafe {
        let mut i = 0;
        while i < whole {
            s.store(c.x.add(i), bounded(s, c, s.load(c.x.add(i))));
            i += LANES;
        }
        if rest > 0 {
            let part = s.load_part(c.x.add(whole).cast_const(), rest);
            s.store_part(c.x.add(whole), bounded(s, c, part), rest);
        }
    }
}

#[inline(always)]
fn bounded<S: Simd>(s: S, c: &CapRow, x: S::V) -> S::V {
    let scaled = s.mul(x, s.splat(c.scale));
    match c.cap {
        Some(cap) => s.soft_cap(scaled, cap),
        None => scaled,
    }
}
