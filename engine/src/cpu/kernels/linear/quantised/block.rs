//! Activations: a row as blocks of 8-bit integers.
//!
//! A block of 32 numbers has one scale, the largest of them divided by 127: their error is at most half of that.
//! This is llama.cpp's Q8_0. Its K formats take one scale for 256 activations; ours have the finer one as well,
//! which costs the same here and has about half the error where some activations are much larger than others.

use super::super::product::Preparation;
use crate::cpu::kernels::dispatch;
use crate::cpu::simd::Simd;

/// Inputs of a block of activations. Rows of quantised weights consist of whole blocks.
pub(super) const INPUTS: usize = 32;
/// Smallest largest magnitude of a block that is not taken for zero: the quotient by it stays finite.
const LARGEST_MIN: f32 = 1e-35;

/// 32 activations: `scale * numbers`, and what follows from their sum.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Block {
    /// The integers, in -127..=127.
    pub(super) numbers: [i8; INPUTS],
    /// The scale.
    pub(super) scale: f32,
    /// `-scale` times the sum of the integers: multiplies what a format subtracts from all its weights.
    pub(super) offset: f32,
    /// -128 times the sum of the integers: makes up for weights that had 128 added.
    pub(super) bytes: i32,
    /// -32 times the sum of the integers, of each half: makes up for weights that have 32 added.
    pub(super) halves: [i32; 2],
}

dispatch! {
    /// See [`super::super::Form::prepare`].
    ///
    /// # Safety
    /// As there; the row has whole blocks.
    fn prepare(Preparation) = quantise, plain numbers
}

#[inline(always)]
unsafe fn quantise<S: Simd>(_: S, row: &Preparation) {
    for block in 0..row.inputs / INPUTS {
        // SAFETY: as the caller says.
        unsafe {
            let numbers = row.x.add(block * INPUTS).cast::<[f32; INPUTS]>().read();
            row.to.cast::<Block>().add(block).write(Block::of(&numbers));
        }
    }
}

impl Block {
    /// Quantises. A block with a number that is not finite gets a scale that is not.
    #[inline(always)]
    fn of(numbers: &[f32; INPUTS]) -> Self {
        // As integers, since then a NaN is larger than all numbers, and there is one instruction for it.
        let largest = f32::from_bits(numbers.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff)));
        let scale = if largest < LARGEST_MIN { 0.0 } else { largest / 127.0 };
        let inverse = if largest < LARGEST_MIN { 0.0 } else { 127.0 / largest };
        let mut integers = [0; INPUTS];
        for (integer, x) in integers.iter_mut().zip(numbers) {
            // Adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in the low bits.
            *integer = (x * inverse + 12_582_912.0).to_bits() as i8;
        }
        let sum = |half: &[i8]| half.iter().map(|&x| i32::from(x)).sum::<i32>();
        let (low, high) = (sum(&integers[..INPUTS / 2]), sum(&integers[INPUTS / 2..]));
        Self {
            numbers: integers,
            scale,
            offset: -scale * (low + high) as f32,
            bytes: -128 * (low + high),
            halves: [-32 * low, -32 * high],
        }
    }
}
