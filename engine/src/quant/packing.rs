//! Writes blocks of the formats that other ones become when a model is loaded.

use super::{Q4_0, Q4_1, Q8_0};
use half::f16;

/// The largest change of a number that is quantised as Q8_0, as a share of the largest magnitude of its 32: half a step
/// of 1/127, and what rounding the quotients to f32 adds. A number may change by [`Q8_0_ERROR_FLOOR`] besides.
pub const Q8_0_ERROR_MAX: f32 = (1.0 + 1.0 / 1024.0) / 254.0;

/// What a number may change by besides, when it is quantised as Q8_0: half the smallest scale that f16 has, 2^-25. It
/// counts in blocks without a magnitude from 2^-9 on, whose scales f16 has few bits for; others change within
/// [`Q8_0_ERROR_MAX`].
pub const Q8_0_ERROR_FLOOR: f32 = 1.0 / (1 << 25) as f32;

impl Q8_0 {
    /// Quantises whole blocks of numbers. `scale` gives the scale of a block, by its index and its numbers.
    pub(crate) fn pack(numbers: &[f32], scale: impl Fn(usize, &[f32; Self::NUMBERS]) -> f16) -> Vec<u8> {
        let mut packed = Vec::with_capacity(numbers.len() / Self::NUMBERS * Self::BYTES);
        for (block, numbers) in numbers.chunks_exact(Self::NUMBERS).enumerate() {
            let numbers = numbers.try_into().expect("a block's numbers");
            Self::of(numbers, scale(block, numbers)).write(&mut packed);
        }
        packed
    }

    /// Returns the scale with which the largest of these numbers is 127 or -127. It is the next one below that f16 has,
    /// so that no step is longer than it must be; the next one above where the largest would be cut off.
    pub(crate) fn scale_of(numbers: &[f32; Self::NUMBERS]) -> f16 {
        let largest = numbers.iter().fold(0.0f32, |largest, number| largest.max(number.abs()));
        let above = |scale: f16| f16::from_bits(scale.to_bits() + 1);
        // These products are exact. Below 2^-14, where f16 has few bits, the next scale may be far.
        let nearest = f16::from_f32(largest / 127.0);
        let below = if 127.0 * nearest.to_f32() > largest { f16::from_bits(nearest.to_bits() - 1) } else { nearest };
        if 127.5 * below.to_f32() < largest { above(below) } else { below }
    }

    /// Returns the largest change of a number by packing, beyond [`Q8_0_ERROR_FLOOR`], as a share of the largest of its
    /// 32. `packed` has the blocks that `numbers` became.
    pub(crate) fn error_of(numbers: &[f32], packed: &[u8]) -> f32 {
        let mut kept = [0.0; Self::NUMBERS];
        let mut error = 0.0f32;
        for (numbers, block) in numbers.chunks_exact(Self::NUMBERS).zip(packed.chunks_exact(Self::BYTES)) {
            Self::read(block).dequantise(&mut kept);
            let largest = numbers.iter().fold(0.0f32, |largest, number| largest.max(number.abs()));
            let change = numbers.iter().zip(&kept).fold(0.0f32, |most, (number, kept)| most.max((number - kept).abs()));
            if largest > 0.0 {
                error = error.max((change - Q8_0_ERROR_FLOOR).max(0.0) / largest);
            }
        }
        error
    }

    /// Quantises numbers with this scale.
    fn of(numbers: &[f32; Self::NUMBERS], d: f16) -> Self {
        let scale = d.to_f32();
        let integer = |number: f32| if scale == 0.0 { 0 } else { (number / scale).round() as i8 };
        Self { d, q: numbers.map(integer) }
    }

    /// Appends the block's bytes; see [`Q8_0::read`].
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.d.to_le_bytes());
        to.extend(self.q.iter().map(|&q| q as u8));
    }
}

impl Q4_0 {
    /// Appends the block's bytes; see [`Q4_0::read`].
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.d.to_le_bytes());
        write_nibbles(&self.q, to);
    }
}

impl Q4_1 {
    /// Appends the block's bytes; see [`Q4_1::read`].
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.d.to_le_bytes());
        to.extend(self.m.to_le_bytes());
        write_nibbles(&self.q, to);
    }
}

/// Appends 32 integers of 4 bits: the low halves of 16 bytes have the first ones, their high halves the others.
fn write_nibbles(q: &[u8; 32], to: &mut Vec<u8>) {
    to.extend((0..16).map(|i| q[i] | q[i + 16] << 4));
}
