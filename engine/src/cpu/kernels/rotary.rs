//! Rotary embedding, and rows of keys and values into the cache.

use super::dispatch;
use crate::cpu::simd::{LANES, Number, Simd};
use crate::spec::{Rope, RopeScaling, Yarn};

/// Angles per position of each pair of numbers of a head.
///
/// Source: Hugging Face transformers, `modeling_rope_utils.py`. As there, an angle is a product in single precision
/// (what the models were trained with); only here its sine and cosine are exact before they are rounded.
pub(in crate::cpu) fn rotary_angles(rope: &Rope) -> Vec<f32> {
    let angle = |i: usize| {
        let angle = rope.theta.powf(-((2 * i) as f64) / rope.dims as f64);
        match &rope.scaling {
            RopeScaling::None => angle,
            RopeScaling::Linear { factor } => angle / factor,
            RopeScaling::Long { factors, .. } => angle / factors[i],
            RopeScaling::Yarn(yarn) => {
                let (first, last) = yarn_ramp(yarn, rope);
                let share = ((i as f64 - first) / (last - first)).clamp(0.0, 1.0);
                angle / yarn.factor * share + angle * (1.0 - share)
            }
            &RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let wavelength = 2.0 * std::f64::consts::PI / angle;
                if wavelength < original_context / high_freq_factor {
                    angle
                } else if wavelength > original_context / low_freq_factor {
                    angle / factor
                } else {
                    let range = high_freq_factor - low_freq_factor;
                    let smooth = (original_context / wavelength - low_freq_factor) / range;
                    (1.0 - smooth) * angle / factor + smooth * angle
                }
            }
        }
    };
    (0..rope.dims / 2).map(|i| angle(i) as f32).collect()
}

/// Returns the index of the last frequency that YaRN leaves as it is, and of the first one that it scales in full;
/// neither needs to be whole.
fn yarn_ramp(yarn: &Yarn, rope: &Rope) -> (f64, f64) {
    let dims = rope.dims as f64;
    let index = |turns: f64| {
        dims * (yarn.original_context / (turns * 2.0 * std::f64::consts::PI)).ln() / (2.0 * rope.theta.ln())
    };
    let (first, last) = (index(yarn.fast_turns), index(yarn.slow_turns));
    let (first, last) = if yarn.whole_pairs { (first.floor(), last.ceil()) } else { (first, last) };
    let (first, last) = (first.max(0.0), last.min(dims - 1.0));
    // Transformers keeps them apart by as much.
    (first, if first == last { last + 0.001 } else { last })
}

/// Rotation of the heads of one row, in place: number `i` of a head and number `i + dims / 2` are a pair.
pub(in crate::cpu) struct RotaryRow {
    /// The first head.
    pub(in crate::cpu) heads: *mut f32,
    /// Heads, one after the other.
    pub(in crate::cpu) count: usize,
    /// Numbers per head.
    pub(in crate::cpu) head_dim: usize,
    /// Numbers per head that are rotated, even.
    pub(in crate::cpu) dims: usize,
    /// `dims / 2` cosines, then as many sines, for the row's position.
    pub(in crate::cpu) table: *const f32,
}

dispatch! {
    /// Rotates.
    ///
    /// # Safety
    /// `count * head_dim` numbers can be read and written behind `heads`, and nobody else uses them; `dims` numbers
    /// can be read behind `table`, and a head has as many.
    fn rotary(RotaryRow) = rotate, plain numbers
}

#[inline(always)]
unsafe fn rotate<S: Simd>(s: S, r: &RotaryRow) {
    let half = r.dims / 2;
    let (whole, rest) = (half / LANES * LANES, half % LANES);
    for head in 0..r.count {
        // SAFETY: the head is one of `count`, and `i + 16`, or `whole + rest`, is at most `half`.
        unsafe {
            let (first, cos) = (r.heads.add(head * r.head_dim), r.table);
            let (second, sin) = (first.add(half), cos.add(half));
            let mut i = 0;
            while i < whole {
                let (a, b) = (s.load(first.add(i)), s.load(second.add(i)));
                let (a, b) = turn(s, a, b, s.load(cos.add(i)), s.load(sin.add(i)));
                s.store(first.add(i), a);
                s.store(second.add(i), b);
                i += LANES;
            }
            if rest > 0 {
                let a = s.load_part(first.add(whole).cast_const(), rest);
                let b = s.load_part(second.add(whole).cast_const(), rest);
                let (cos, sin) = (s.load_part(cos.add(whole), rest), s.load_part(sin.add(whole), rest));
                let (a, b) = turn(s, a, b, cos, sin);
                s.store_part(first.add(whole), a, rest);
                s.store_part(second.add(whole), b, rest);
            }
        }
    }
}

#[inline(always)]
fn turn<S: Simd>(s: S, a: S::V, b: S::V, cos: S::V, sin: S::V) -> (S::V, S::V) {
    (s.sub(s.mul(a, cos), s.mul(b, sin)), s.fma(b, cos, s.mul(a, sin)))
}

/// One row's keys or values, narrowed into the cache, and the positions after it that have no token yet.
pub(in crate::cpu) struct CacheRow {
    /// The row: `heads * head_dim` numbers.
    pub(in crate::cpu) from: *const f32,
    /// Where the first head's part goes.
    pub(in crate::cpu) to: *mut u8,
    /// Bytes from one head's part to the next head's.
    pub(in crate::cpu) head_stride: usize,
    /// Heads.
    pub(in crate::cpu) heads: usize,
    /// Numbers per head.
    pub(in crate::cpu) head_dim: usize,
    /// Positions after this one to be zeroed.
    pub(in crate::cpu) zeroed: usize,
}

dispatch! {
    /// Writes.
    ///
    /// # Safety
    /// `heads * head_dim` numbers can be read behind `from`; `1 + zeroed` positions of each head can be written behind
    /// `to` and are aligned to the number format, and nobody else uses them.
    fn cache_row(CacheRow) = write_row
}

#[inline(always)]
unsafe fn write_row<S: Simd, N: Number>(_: S, c: &CacheRow) {
    for head in 0..c.heads {
        // SAFETY: the head is one of `heads`.
        unsafe {
            let (from, to) = (c.from.add(head * c.head_dim), c.to.add(head * c.head_stride).cast::<N>());
            for i in 0..c.head_dim {
                to.add(i).write(N::narrow(from.add(i).read()));
            }
            to.add(c.head_dim).write_bytes(0, c.zeroed * c.head_dim);
        }
    }
}
