//! Gated activation of one row.

use super::dispatch;
use crate::cpu::simd::{LANES, Simd};
use crate::spec::Activation;

/// One row: `out = activation(gate) * up`.
pub(in crate::cpu) struct Gated {
    /// The activation.
    pub(in crate::cpu) activation: Activation,
    /// `width` gates, then `width` ups.
    pub(in crate::cpu) gate_up: *const f32,
    /// The result, `width` numbers; may be `gate_up`.
    pub(in crate::cpu) out: *mut f32,
    /// Numbers of the result.
    pub(in crate::cpu) width: usize,
}

dispatch! {
    /// Activates.
    ///
    /// # Safety
    /// `2 * width` numbers can be read behind `gate_up` and `width` written behind `out`, which nobody else uses
    /// meanwhile.
    fn gated(Gated) = activate, plain numbers
}

#[inline(always)]
unsafe fn activate<S: Simd>(s: S, a: &Gated) {
    let (whole, rest) = (a.width / LANES * LANES, a.width % LANES);
    // SAFETY: gates are below `width`, ups below `2 * width`.
    unsafe {
        let up = a.gate_up.add(a.width);
        let mut i = 0;
        while i < whole {
            s.store(a.out.add(i), gate(s, a.activation, s.load(a.gate_up.add(i)), s.load(up.add(i))));
            i += LANES;
        }
        if rest > 0 {
            let (left, up) = (s.load_part(a.gate_up.add(whole), rest), s.load_part(up.add(whole), rest));
            let activated = gate(s, a.activation, left, up);
            s.store_part(a.out.add(whole), activated, rest);
        }
    }
}

/// Both activations are `gate / (1 + e^-x)`, with an `x` of their own.
#[inline(always)]
fn gate<S: Simd>(s: S, activation: Activation, gate: S::V, up: S::V) -> S::V {
    let x = match activation {
        Activation::Silu => gate,
        Activation::GeluTanh => gelu_exponent(s, gate),
    };
    let e = s.exp(s.sub(s.splat(0.0), x));
    s.mul(s.div(gate, s.add(s.splat(1.0), e)), up)
}

/// `(1 + tanh(u)) / 2 = 1 / (1 + e^-2u)`: this is `2u` of the approximation of GELU (Hendrycks and Gimpel,
/// "Gaussian error linear units", 2016), `u = sqrt(2 / pi) * (x + 0.044715 x^3)`.
#[inline(always)]
fn gelu_exponent<S: Simd>(s: S, x: S::V) -> S::V {
    const TWICE_ROOT: f32 = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::SQRT_2;
    let cubic = s.fma(s.mul(x, x), s.splat(0.044_715 * TWICE_ROOT), s.splat(TWICE_ROOT));
    s.mul(x, cubic)
}
