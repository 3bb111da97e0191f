//! Random numbers that are the same everywhere: integer arithmetic and one multiplication and addition in f32,
//! none of it from a platform's mathematics library.

use crate::splitmix::{GAMMA, mix};
use domain::Dtype;
use half::{bf16, f16};

/// Numbers made at a time.
pub(super) const PIECE_NUMBERS: usize = 1 << 18;

/// Mean of the sum of four 16-bit numbers.
const SUM_MEAN: i32 = 2 * 0xffff;
/// Standard deviation of that sum: `sqrt(4 * (2^32 - 1) / 12)`.
const SUM_DEVIATION: f32 = 37_837.227;

/// The numbers of one tensor: nearly normal (the sum of four uniform ones), never further from the mean than 3.47
/// standard deviations.
#[derive(Debug)]
pub(super) struct Numbers {
    state: u64,
    mean: f32,
    scale: f32,
}

impl Numbers {
    /// Of the tensor `name`. Each tensor has numbers of its own, whatever tensors there are besides.
    pub(super) fn new(seed: u64, name: &str, mean: f32, deviation: f32) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("baton 2026 random weights v1");
        hasher.update(&seed.to_le_bytes());
        hasher.update(name.as_bytes());
        let mut state = [0; 8];
        hasher.finalize_xof().fill(&mut state);
        Self { state: u64::from_le_bytes(state), mean, scale: deviation / SUM_DEVIATION }
    }

    #[inline]
    fn next(&mut self) -> f32 {
        self.state = self.state.wrapping_add(GAMMA);
        let bits = mix(self.state);
        let part = |shift: u32| i32::from((bits >> shift) as u16);
        let sum = part(0) + part(16) + part(32) + part(48) - SUM_MEAN;
        self.mean + sum as f32 * self.scale
    }
}

/// Replaces `bytes` by the next `count` numbers in `dtype`, little endian.
pub(super) fn encode(numbers: &mut Numbers, count: usize, dtype: Dtype, bytes: &mut Vec<u8>) {
    bytes.resize(count * dtype.bytes(), 0);
    match dtype {
        Dtype::F32 => fill(bytes, || numbers.next().to_le_bytes()),
        Dtype::F16 => fill(bytes, || f16::from_f32(numbers.next()).to_le_bytes()),
        Dtype::Bf16 => fill(bytes, || bf16::from_f32(numbers.next()).to_le_bytes()),
    }
}

fn fill<const N: usize>(bytes: &mut [u8], mut next: impl FnMut() -> [u8; N]) {
    for number in bytes.chunks_exact_mut(N) {
        number.copy_from_slice(&next());
    }
}
