//! Randomness as a pure function of a seed and an index.
//!
//! The seed goes through SplitMix64's finalizer first: the seeds of the choices of one request differ by a multiple of
//! [`GAMMA`], and without that their streams would be one stream, shifted.

use crate::splitmix::{GAMMA, mix};

/// Returns the number, in `0 .. 1` and in units of 2^-64, that belongs to output token `index` of the sequence with
/// `seed`.
pub(super) fn uniform(seed: u64, index: u32) -> u64 {
    mix(mix(seed).wrapping_add(GAMMA.wrapping_mul(u64::from(index) + 1)))
}
