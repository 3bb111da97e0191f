//! Rotary embedding, and rows of keys and values into the cache.

use super::dispatch;
use crate::cpu::simd::{LANES, Number, Simd};

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
