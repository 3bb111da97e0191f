//! Gated activation of one row.

use super::dispatch;
use crate::cpu::simd::{LANES, Simd};

/// One row: `out = gate / (1 + e^-gate) * up`.
pub(in crate::cpu) struct SiluMul {
    /// `width` gates, then `width` ups.
    pub(in crate::cpu) gate_up: *const f32,
    /// The result, `width` numbers.
    pub(in crate::cpu) out: *mut f32,
    /// Numbers of the result.
    pub(in crate::cpu) width: usize,
}

dispatch! {
    /// Activates.
    ///
    /// # Safety
    /// `2 * width` numbers can be read behind `gate_up` and `width` written behind `out`, which nobody else uses meanwhile.
    fn silu_mul(SiluMul) = activate, plain numbers
}

#[inline(always)]
unsafe fn activate<S: Simd>(s: S, a: &SiluMul) {
    let (whole, rest) = (a.width / LANES * LANES, a.width % LANES);
    // SAFETY: gates are below `width`, ups below `2 * width`.
    unsafe {
        let up = a.gate_up.add(a.width);
        let mut i = 0;
        while i < whole {
            s.store(a.out.add(i), silu(s, s.load(a.gate_up.add(i)), s.load(up.add(i))));
            i += LANES;
        }
        if rest > 0 {
            let activated = silu(s, s.load_part(a.gate_up.add(whole), rest), s.load_part(up.add(whole), rest));
            s.store_part(a.out.add(whole), activated, rest);
        }
    }
}

#[inline(always)]
fn silu<S: Simd>(s: S, gate: S::V, up: S::V) -> S::V {
    let e = s.exp(s.sub(s.splat(0.0), gate));
    s.mul(s.div(gate, s.add(s.splat(1.0), e)), up)
}
