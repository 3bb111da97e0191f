//! The number formats that weights are stored in, those of GGUF that quantise included, and what their bytes mean:
//! the one definition of it. The formats and their names are ggml's (`ggml-common.h` and `ggml-quants.c` of
//! llama.cpp).
//!
//! A row of a quantised matrix is a sequence of blocks. Each holds small integers and scales:
//!
//! | format | a block | the numbers |
//! | --- | --- | --- |
//! | Q8_0 | 32 | `d * q`, `q` in -128..=127 |
//! | Q4_0 | 32 | `d * (q - 8)`, `q` in 0..16 |
//! | Q4_1 | 32 | `d * q + m`, `q` in 0..16 |
//! | Q4_K | 256 in 8 parts | `d * scale * q - dmin * min`, `q` in 0..16; `scale` and `min`, in 0..64, are the part's |
//! | Q6_K | 256 in 16 parts | `d * scale * (q - 32)`, `q` in 0..64; `scale`, in -128..=127, is the part's |
//!
//! `d`, `dmin` and `m` are f16.
//!
//! Kernels multiply these. The other formats of GGUF files are repacked as Q8_0 when they are loaded
//! ([`Repacked`]); what quantised safetensors become is in `checkpoint::quantised`.
//!
//! What is deliberately absent: how kernels keep weights (`cpu::kernels` packs them into an order of its own).

mod packing;
mod repacked;
#[cfg(test)]
pub(crate) mod tests;

pub use packing::{Q8_0_ERROR_FLOOR, Q8_0_ERROR_MAX};
pub use repacked::Repacked;

use domain::Dtype;
use half::{bf16, f16};
use std::fmt;

/// Number format of stored weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// One number after the other.
    Plain(Dtype),
    /// Blocks of 32: 8 bits a number.
    Q8_0,
    /// Blocks of 32: 4 bits a number.
    Q4_0,
    /// Blocks of 32: 4 bits a number, with an offset.
    Q4_1,
    /// Blocks of 256: 4 bits a number, with an offset.
    Q4K,
    /// Blocks of 256: 6 bits a number.
    Q6K,
    /// A format that is repacked as Q8_0 when it is loaded.
    Repacked(Repacked),
}

impl WeightFormat {
    /// Numbers of a block. Rows consist of whole blocks.
    pub fn block_numbers(self) -> usize {
        match self {
            Self::Plain(_) => 1,
            Self::Q8_0 => Q8_0::NUMBERS,
            Self::Q4_0 => Q4_0::NUMBERS,
            Self::Q4_1 => Q4_1::NUMBERS,
            Self::Q4K => Q4K::NUMBERS,
            Self::Q6K => Q6K::NUMBERS,
            Self::Repacked(format) => format.block_numbers(),
        }
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::Plain(dtype) => dtype.bytes(),
            Self::Q8_0 => Q8_0::BYTES,
            Self::Q4_0 => Q4_0::BYTES,
            Self::Q4_1 => Q4_1::BYTES,
            Self::Q4K => Q4K::BYTES,
            Self::Q6K => Q6K::BYTES,
            Self::Repacked(format) => format.block_bytes(),
        }
    }

    /// Returns the bytes of `numbers` numbers; `None`: these are not whole blocks, or more bytes than can be counted.
    pub fn bytes(self, numbers: usize) -> Option<usize> {
        let whole = numbers.is_multiple_of(self.block_numbers());
        whole.then(|| (numbers / self.block_numbers()).checked_mul(self.block_bytes())).flatten()
    }

    /// Widens whole blocks, each number rounded once at most: `out` has as many numbers as `bytes` holds.
    pub fn dequantise(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(Some(bytes.len()), self.bytes(out.len()), "{} numbers of {self}", out.len());
        let blocks = bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_numbers()));
        match self {
            Self::Plain(dtype) => blocks.for_each(|(bytes, out)| out[0] = plain(dtype, bytes)),
            Self::Q8_0 => blocks.for_each(|(bytes, out)| Q8_0::read(bytes).dequantise(out)),
            Self::Q4_0 => blocks.for_each(|(bytes, out)| Q4_0::read(bytes).dequantise(out)),
            Self::Q4_1 => blocks.for_each(|(bytes, out)| Q4_1::read(bytes).dequantise(out)),
            Self::Q4K => blocks.for_each(|(bytes, out)| Q4K::read(bytes).dequantise(out)),
            Self::Q6K => blocks.for_each(|(bytes, out)| Q6K::read(bytes).dequantise(out)),
            Self::Repacked(format) => format.dequantise(bytes, out),
        }
    }
}

impl From<Dtype> for WeightFormat {
    fn from(dtype: Dtype) -> Self {
        Self::Plain(dtype)
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repacked(format) => return format.fmt(f),
            Self::Plain(Dtype::F32) => "F32",
            Self::Plain(Dtype::F16) => "F16",
            Self::Plain(Dtype::Bf16) => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q4K => "Q4_K",
            Self::Q6K => "Q6_K",
        })
    }
}

/// Reads one number, little endian.
pub(crate) fn plain(dtype: Dtype, bytes: &[u8]) -> f32 {
    match (dtype, bytes) {
        (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (Dtype::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        (_, bytes) => f32::from_le_bytes(bytes.try_into().expect("a number's bytes")),
    }
}

/// Returns the f16 at `at`.
fn half_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// A block of Q8_0, read.
pub(crate) struct Q8_0 {
    /// The scale.
    pub(crate) d: f16,
    /// The integers.
    pub(crate) q: [i8; Self::NUMBERS],
}

impl Q8_0 {
    /// Numbers of a block.
    pub(crate) const NUMBERS: usize = 32;
    /// Bytes of a block.
    pub(crate) const BYTES: usize = 34;

    /// Reads a block's bytes: `d`, then the integers.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::BYTES);
        Self { d: half_at(bytes, 0), q: std::array::from_fn(|i| bytes[2 + i] as i8) }
    }

    fn dequantise(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        out.iter_mut().zip(&self.q).for_each(|(out, &q)| *out = d * f32::from(q));
    }
}

/// A block of Q4_0, read.
pub(crate) struct Q4_0 {
    /// The scale.
    pub(crate) d: f16,
    /// The integers, 8 too large.
    pub(crate) q: [u8; Self::NUMBERS],
}

impl Q4_0 {
    /// Numbers of a block.
    pub(crate) const NUMBERS: usize = 32;
    /// Bytes of a block.
    pub(crate) const BYTES: usize = 18;

    /// Reads a block's bytes: `d`, then the integers.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::BYTES);
        Self { d: half_at(bytes, 0), q: nibbles(&bytes[2..]) }
    }

    fn dequantise(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        out.iter_mut().zip(&self.q).for_each(|(out, &q)| *out = d * (f32::from(q) - 8.0));
    }
}

/// A block of Q4_1, read.
pub(crate) struct Q4_1 {
    /// The scale.
    pub(crate) d: f16,
    /// Added to all numbers.
    pub(crate) m: f16,
    /// The integers.
    pub(crate) q: [u8; Self::NUMBERS],
}

impl Q4_1 {
    /// Numbers of a block.
    pub(crate) const NUMBERS: usize = 32;
    /// Bytes of a block.
    pub(crate) const BYTES: usize = 20;

    /// Reads a block's bytes: `d`, `m`, then the integers.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::BYTES);
        Self { d: half_at(bytes, 0), m: half_at(bytes, 2), q: nibbles(&bytes[4..]) }
    }

    fn dequantise(&self, out: &mut [f32]) {
        // The product is exact, the sum is rounded.
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        out.iter_mut().zip(&self.q).for_each(|(out, &q)| *out = d * f32::from(q) + m);
    }
}

/// Reads 32 integers of 4 bits: the low halves of 16 bytes, then their high halves.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

/// A block of Q4_K, read.
pub(crate) struct Q4K {
    /// Multiplies the scales.
    pub(crate) d: f16,
    /// Multiplies the minima.
    pub(crate) dmin: f16,
    /// Scale of each part.
    pub(crate) scales: [u8; Self::PARTS],
    /// Minimum of each part.
    pub(crate) mins: [u8; Self::PARTS],
    /// The integers.
    pub(crate) q: [u8; Self::NUMBERS],
}

impl Q4K {
    /// Numbers of a block.
    pub(crate) const NUMBERS: usize = 256;
    /// Bytes of a block.
    pub(crate) const BYTES: usize = 144;
    /// Parts of a block.
    pub(crate) const PARTS: usize = 8;

    /// Reads a block's bytes: `d`, `dmin`, 12 bytes of scales and minima in 6 bits each, 128 bytes of integers. In
    /// these, 32 bytes hold two parts, one in their low and one in their high halves.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::BYTES);
        let (packed, integers) = (&bytes[4..16], &bytes[16..]);
        // The first four parts have bytes of their own. The last four have their low bits in four more bytes, and their
        // high bits above those of the first.
        let six = |part: usize, first: usize, low: u8| match part {
            0..4 => packed[first + part] & 63,
            _ => low | packed[first + part - 4] >> 6 << 4,
        };
        Self {
            d: half_at(bytes, 0),
            dmin: half_at(bytes, 2),
            scales: std::array::from_fn(|part| six(part, 0, packed[4 + part.max(4)] & 15)),
            mins: std::array::from_fn(|part| six(part, 4, packed[4 + part.max(4)] >> 4)),
            q: std::array::from_fn(|i| {
                let byte = integers[i / 64 * 32 + i % 32];
                if i % 64 < 32 { byte & 15 } else { byte >> 4 }
            }),
        }
    }

    fn dequantise(&self, out: &mut [f32]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (i, out) in out.iter_mut().enumerate() {
            let part = i / (Self::NUMBERS / Self::PARTS);
            // The products are exact, the difference is rounded.
            let scale = d * f32::from(self.scales[part]);
            *out = scale * f32::from(self.q[i]) - dmin * f32::from(self.mins[part]);
        }
    }
}

/// A block of Q6_K, read.
pub(crate) struct Q6K {
    /// Multiplies the scales.
    pub(crate) d: f16,
    /// Scale of each part.
    pub(crate) scales: [i8; Self::PARTS],
    /// The integers, 32 too large.
    pub(crate) q: [u8; Self::NUMBERS],
}

impl Q6K {
    /// Numbers of a block.
    pub(crate) const NUMBERS: usize = 256;
    /// Bytes of a block.
    pub(crate) const BYTES: usize = 210;
    /// Parts of a block.
    pub(crate) const PARTS: usize = 16;

    /// Reads a block's bytes: 128 bytes of the integers' low 4 bits, 64 of their high 2 bits, the scales, `d`.
    /// Each half of the integers has half of the bytes; in it, number `32 * k + l` has its low bits in byte `32 *
    /// (k % 2) + l`, in the low half for the first two `k`, and its high bits in bits `2 * k` of byte `l`.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::BYTES);
        let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
        let q = |i: usize| {
            let (half, k, l) = (i / 128, i % 128 / 32, i % 32);
            let low = low[half * 64 + k % 2 * 32 + l] >> (k / 2 * 4) & 15;
            low | (high[half * 32 + l] >> (2 * k) & 3) << 4
        };
        Self {
            d: half_at(bytes, 208),
            scales: std::array::from_fn(|part| scales[part] as i8),
            q: std::array::from_fn(q),
        }
    }

    fn dequantise(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (i, out) in out.iter_mut().enumerate() {
            // The scale is exact, the product is rounded.
            let scale = d * f32::from(self.scales[i / (Self::NUMBERS / Self::PARTS)]);
            *out = scale * (f32::from(self.q[i]) - 32.0);
        }
    }
}
