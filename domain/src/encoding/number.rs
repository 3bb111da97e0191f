//! Numbers of a pool, as bytes of a record and as `f32`.

use super::small;

/// A number as it lies in a record, little-endian.
pub(super) trait Bytes: Copy {
    /// Splits a record into its numbers.
    fn split(record: &[u8]) -> &[Self];

    /// Splits a record into its numbers, to be written.
    fn split_mut(record: &mut [u8]) -> &mut [Self];

    fn bits(self) -> u32;
}

impl<const LEN: usize> Bytes for [u8; LEN] {
    #[inline(always)]
    fn split(record: &[u8]) -> &[Self] {
        record.as_chunks().0
    }

    #[inline(always)]
    fn split_mut(record: &mut [u8]) -> &mut [Self] {
        record.as_chunks_mut().0
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        let mut word = [0; 4];
        word[..LEN].copy_from_slice(&self);
        u32::from_le_bytes(word)
    }
}

/// A number format of pools. Bits are those of a number in the low ones of a `u32`.
pub(super) trait Number {
    /// A number in a record.
    type Bytes: Bytes;

    /// The bits of infinity: from here on, without the sign, is what is not finite.
    const INFINITY: u32;
    /// What is no number.
    const NAN: Self::Bytes;

    /// Returns the bits of the number without its sign.
    #[inline(always)]
    fn magnitude(number: Self::Bytes) -> u32 {
        // All formats have the sign first.
        const { assert!(size_of::<Self::Bytes>() <= 4) };
        number.bits() & ((1 << (8 * size_of::<Self::Bytes>() - 1)) - 1)
    }

    /// Returns the value of these bits, which are of a finite number.
    fn value_of(bits: u32) -> f32;

    /// Returns the value of a finite number.
    #[inline(always)]
    fn value(number: Self::Bytes) -> f32 {
        Self::value_of(number.bits())
    }

    /// Returns the number that is nearest to a value that is not beyond the largest, ties to even.
    fn nearest(value: f32) -> Self::Bytes;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Number for F32 {
    type Bytes = [u8; 4];
    const INFINITY: u32 = 0x7F80_0000;
    const NAN: [u8; 4] = 0x7FC0_0000_u32.to_le_bytes();

    #[inline(always)]
    fn value_of(bits: u32) -> f32 {
        f32::from_bits(bits)
    }

    #[inline(always)]
    fn nearest(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}

impl Number for F16 {
    type Bytes = [u8; 2];
    const INFINITY: u32 = 0x7C00;
    const NAN: [u8; 2] = 0x7E00_u16.to_le_bytes();

    #[inline(always)]
    fn value_of(bits: u32) -> f32 {
        small::widen::<5, 10>(bits)
    }

    #[inline(always)]
    fn nearest(value: f32) -> [u8; 2] {
        (small::narrow::<5, 10>(value) as u16).to_le_bytes()
    }
}

impl Number for Bf16 {
    type Bytes = [u8; 2];
    const INFINITY: u32 = 0x7F80;
    const NAN: [u8; 2] = 0x7FC0_u16.to_le_bytes();

    #[inline(always)]
    fn value_of(bits: u32) -> f32 {
        f32::from_bits(bits << 16)
    }

    #[inline(always)]
    fn nearest(value: f32) -> [u8; 2] {
        let bits = value.to_bits();
        ((bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes()
    }
}
