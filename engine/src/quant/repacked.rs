//! Formats of GGUF that no kernel multiplies: candle widens them, and at load they are repacked as Q8_0.
//!
//! This is the one module that knows candle. It reads a row's blocks as ggml defines them
//! (<https://docs.rs/candle-core>, `quantized::k_quants`), and keeps nothing of candle's: numbers go out.
//!
//! Repacking changes a number by at most [`Q8_0_ERROR_MAX`] of the largest of its 32, and
//! [`Q8_0_ERROR_FLOOR`](super::Q8_0_ERROR_FLOOR). Q5_0 changes nothing: it has blocks of 32 and integers of 5 bits with
//! one scale, which Q8_0 keeps.

use super::{Q8_0, Q8_0_ERROR_MAX, half_at};
use candle_core::CpuStorage;
use candle_core::quantized::GgmlDType;
use std::borrow::Cow;
use std::fmt;

/// A format that is repacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repacked {
    /// Blocks of 32: 5 bits a number.
    Q5_0,
    /// Blocks of 32: 5 bits a number, with an offset.
    Q5_1,
    /// Blocks of 32: 8 bits a number, with their sum.
    Q8_1,
    /// Blocks of 256: 2 bits a number, with an offset.
    Q2K,
    /// Blocks of 256: 3 bits a number.
    Q3K,
    /// Blocks of 256: 5 bits a number, with an offset.
    Q5K,
    /// Blocks of 256: 8 bits a number, with sums.
    Q8K,
}

impl Repacked {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Q5_0, Self::Q5_1, Self::Q8_1, Self::Q2K, Self::Q3K, Self::Q5K, Self::Q8K];

    /// Returns the numbers of a block.
    pub(super) fn block_numbers(self) -> usize {
        self.of_candle().block_size()
    }

    /// Returns the bytes of a block.
    pub(super) fn block_bytes(self) -> usize {
        self.of_candle().type_size()
    }

    /// Widens whole blocks.
    pub(super) fn dequantise(self, bytes: &[u8], out: &mut [f32]) {
        // Candle takes blocks that are aligned like their f16 and f32; those of a file may lie anywhere.
        let words: Vec<u32>;
        let aligned = bytes.as_ptr().cast::<u32>().is_aligned();
        let bytes = if aligned {
            bytes
        } else {
            words = copied(bytes);
            &as_bytes(&words)[..bytes.len()]
        };
        match self.of_candle().from_data(Cow::Borrowed(bytes)).dequantize(out.len()) {
            Ok(CpuStorage::F32(numbers)) => out.copy_from_slice(&numbers),
            other => unreachable!("candle widens blocks on the CPU to f32, and not to {other:?}"),
        }
    }

    /// Returns whole blocks as blocks of Q8_0.
    pub(crate) fn repack(self, bytes: &[u8]) -> Vec<u8> {
        let mut numbers = vec![0.0; bytes.len() / self.block_bytes() * self.block_numbers()];
        self.dequantise(bytes, &mut numbers);
        match self {
            Self::Q5_0 => Q8_0::pack(&numbers, |block, _| half_at(bytes, block * self.block_bytes())),
            _ => Q8_0::pack(&numbers, |_, numbers| Q8_0::scale_of(numbers)),
        }
    }

    /// Returns the largest change of a number by repacking, as a share of the largest magnitude of its 32.
    pub(crate) fn error_max(self) -> f32 {
        if self == Self::Q5_0 { 0.0 } else { Q8_0_ERROR_MAX }
    }

    fn of_candle(self) -> GgmlDType {
        match self {
            Self::Q5_0 => GgmlDType::Q5_0,
            Self::Q5_1 => GgmlDType::Q5_1,
            Self::Q8_1 => GgmlDType::Q8_1,
            Self::Q2K => GgmlDType::Q2K,
            Self::Q3K => GgmlDType::Q3K,
            Self::Q5K => GgmlDType::Q5K,
            Self::Q8K => GgmlDType::Q8K,
        }
    }
}

impl fmt::Display for Repacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_1 => "Q8_1",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q5K => "Q5_K",
            Self::Q8K => "Q8_K",
        })
    }
}

/// Copies bytes to where they are aligned like a u32.
fn copied(bytes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| u32::from_ne_bytes(std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0)));
    bytes.chunks(4).map(word).collect()
}

fn as_bytes(words: &[u32]) -> &[u8] {
    // SAFETY: every byte of a u32 is a byte, the slice has four for each, and u8 needs no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
