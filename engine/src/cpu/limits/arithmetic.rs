//! What the loops of all instruction sets share.

use crate::cpu::kernels::{Form, Prepared};
use crate::quant::WeightFormat;

/// Numbers that a kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// f32: what is stored in f32 or f16.
    F32,
    /// bf16.
    Bf16,
    /// Integers of 8 bits: quantised weights.
    Int8,
}

impl Arithmetic {
    /// Returns what numbers of this format are multiplied in.
    pub fn of(format: WeightFormat) -> Self {
        match Form::of(format).prepared() {
            Prepared::AsTheyAre => Self::F32,
            Prepared::Bf16 => Self::Bf16,
            Prepared::Blocks => Self::Int8,
        }
    }
}

/// Multiplications in registers.
pub(super) struct Products {
    /// Operations of a round.
    pub(super) operations: usize,
    /// Runs so many rounds.
    pub(super) rounds: unsafe fn(usize),
}

impl Products {
    /// Runs so many rounds.
    pub(super) fn run(&self, rounds: usize) {
        // SAFETY: the functions that make one have the proof that the CPU has what is needed.
        unsafe { (self.rounds)(rounds) }
    }
}

/// Reads words into as many sums as hide the latency of each.
#[inline(always)]
pub(super) fn sum_words(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 64];
    for chunk in bytes.chunks_exact(64 * 8) {
        for (sum, word) in sums.iter_mut().zip(chunk.chunks_exact(8)) {
            *sum ^= u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        }
    }
    sums.into_iter().fold(0, |all, sum| all ^ sum)
}
