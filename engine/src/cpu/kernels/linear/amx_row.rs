//! A single row times a panel of bf16 pairs, with the bits that tiles give it: see [`super::amx`].
//!
//! A tile of one row leaves most of itself unused, and what it loads is asked for 16 lines at a time and not
//! before, so that memory has pauses. Vectors of AVX-512 keep more lines under way.
//!
//! A tile sums 32 inputs before it adds them to what was there: those with even numbers and those with odd ones
//! for themselves, each product added with one rounding. `vdpbf16ps` rounds and flushes small numbers to zero
//! likewise, but adds two products to one sum. So one of the two is made -0, which changes no sum, not even one
//! that is not finite.
//!
//! What is deliberately absent: the same for two rows or more, which tiles multiply at the cost of one.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, `TDPBF16PS` and `VDPBF16PS`.

use super::pair_panel::{INPUTS, padded};
use super::product::{PANEL, Product, Start};
use crate::cpu::simd::LANES;
use std::arch::x86_64::*;

/// Vectors of a panel.
const V: usize = PANEL / LANES;
/// How far ahead of the weights that are multiplied others are asked for, in bytes.
const AHEAD: usize = 8 << 10;

/// See [`super::Form::multiply`].
///
/// # Safety
/// As there, for one row; and the CPU has AVX512-BW and AVX512-BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn multiply(p: &Product) {
    const EVEN: __mmask32 = 0x5555_5555;
    let negative_zeros = _mm512_set1_epi32(0x8000_8000_u32 as i32);
    let ones = _mm512_set1_epi32(0x3f80_3f80);
    let mut sums = [_mm512_setzero_ps(); V];
    // SAFETY: the row, biases and the panel have what is read, and 64 numbers of `out` can be written.
    unsafe {
        for (v, sum) in sums.iter_mut().enumerate() {
            match p.start {
                Start::Zero => {}
                Start::Bias(bias) => *sum = flush(_mm512_loadu_ps(bias.add(v * LANES))),
                Start::Out => *sum = flush(_mm512_loadu_ps(p.out.add(v * LANES))),
            }
        }
        let x = p.x.cast::<i32>();
        let weights = p.weights.cast::<i32>();
        for tile in (0..padded(p.inputs) / 2).step_by(INPUTS / 2) {
            let (mut even, mut odd) = ([_mm512_setzero_ps(); V], [_mm512_setzero_ps(); V]);
            for pair in tile..tile + INPUTS / 2 {
                let both = _mm512_set1_epi32(x.add(pair).read());
                let first = _mm512_mask_mov_epi16(ones, EVEN, both);
                let second = _mm512_mask_mov_epi16(ones, !EVEN, both);
                for v in 0..V {
                    let at = weights.add(pair * PANEL + v * LANES);
                    // It need not be there.
                    _mm_prefetch::<_MM_HINT_T1>(at.cast::<i8>().wrapping_add(AHEAD));
                    let w = _mm512_loadu_si512(at.cast());
                    even[v] = dot(even[v], first, _mm512_mask_mov_epi16(negative_zeros, EVEN, w));
                    odd[v] = dot(odd[v], second, _mm512_mask_mov_epi16(negative_zeros, !EVEN, w));
                }
            }
            for v in 0..V {
                sums[v] = flush(_mm512_add_ps(sums[v], flush(_mm512_add_ps(even[v], odd[v]))));
            }
        }
        for (v, sum) in sums.iter().enumerate() {
            _mm512_storeu_ps(p.out.add(v * LANES), *sum);
        }
    }
}

/// Numbers that are too small to be normal become zeros, as in a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn flush(sums: __m512) -> __m512 {
    dot(sums, _mm512_setzero_si512(), _mm512_set1_epi32(0x8000_8000_u32 as i32))
}

/// Adds the products of pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn dot(sums: __m512, a: __m512i, b: __m512i) -> __m512 {
    // SAFETY: the bits are the same 512, and every value of them is a pair of numbers.
    unsafe {
        let (a, b) = (std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b));
        _mm512_dpbf16_ps(sums, a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::linear::amx;
    use crate::cpu::kernels::tests::{Line, Numbers, lines, seed};
    use crate::cpu::simd::{Avx512Level, Isa};
    use crate::cpu::tests::effort::cases;
    use proptest::prelude::*;

    /// 32 random bits, of two numbers in bf16 or one in f32: any, or such that exponents are near `exponent`.
    fn random_bits(numbers: &mut Numbers, exponent: Option<u32>) -> u32 {
        let mut word = || (numbers.next() * 32768.0).floor() as i16 as u16;
        let mut half = || match exponent {
            None => word(),
            Some(exponent) => word() & 0x807f | ((exponent + u32::from(word() % 4)) << 7) as u16,
        };
        u32::from(half()) << 16 | u32::from(half())
    }

    proptest! {
        #![proptest_config(cases(1))]

        /// Where products are ordinary, vanish, overflow, or anything at all, infinite and no number included.
        #[test]
        fn a_row_by_itself_has_the_bits_of_tiles(
            seed in seed(), inputs in 1usize..200,
            exponents in prop::sample::select(&[None, Some((120, 125, 120)), Some((62, 62, 0)), Some((1, 125, 0)), Some((188, 190, 250))]),
            start in any::<bool>(),
        ) {
            if !matches!(Isa::best(), Isa::Avx512(s) if s.has(Avx512Level::Amx)) {
                return Ok(());
            }
            const ROWS: usize = 3;
            let mut numbers = Numbers(seed);
            let mut random = |bytes: usize, exponent| {
                let mut memory = lines(bytes, 0);
                let words = memory.as_mut_ptr().cast::<u32>();
                // SAFETY: the memory has these bytes.
                (0..bytes / 4).for_each(|i| unsafe { words.add(i).write(random_bits(&mut numbers, exponent)) });
                memory
            };
            let x_stride = padded(inputs) * 2;
            let x = random(ROWS * x_stride, exponents.map(|(x, _, _)| x));
            let weights = random(x_stride * PANEL, exponents.map(|(_, weights, _)| weights));
            let bias = random(4 * PANEL, exponents.map(|(_, _, bias)| bias));
            let product = |x: *const Line, rows: usize, out: *mut f32| Product {
                x: x.cast(),
                x_stride,
                rows,
                inputs,
                weights: weights.as_ptr().cast(),
                start: if start { Start::Bias(bias.as_ptr().cast()) } else { Start::Zero },
                out,
                out_stride: PANEL,
            };
            let (mut together, mut alone) = ([0.0f32; ROWS * PANEL], [0.0f32; ROWS * PANEL]);
            // SAFETY: memory has the sizes that the fields say, and the CPU has AMX and what comes before it.
            unsafe {
                amx::multiply(&product(x.as_ptr(), ROWS, together.as_mut_ptr()));
                for row in 0..ROWS {
                    let x = x.as_ptr().byte_add(row * x_stride);
                    multiply(&product(x, 1, alone.as_mut_ptr().add(row * PANEL)));
                }
            }
            for (a, b) in together.iter().zip(&alone) {
                prop_assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{:x} {:x}", a.to_bits(), b.to_bits());
            }
        }
    }
}
