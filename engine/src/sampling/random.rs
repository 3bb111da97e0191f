//! Randomness as a pure function of a seed and an index.
//!
//! Source: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) with the
//! finalizer that Vigna's public-domain `splitmix64.c` uses. The seed goes through the finalizer first: the seeds of the
//! choices of one request differ by a multiple of [`GAMMA`], and without that their streams would be one stream,
//! shifted.

/// The odd number next to 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number, in `0 .. 1` and a multiple of 2^-53, that belongs to output token `index` of the sequence with `seed`.
pub(super) fn uniform(seed: u64, index: u32) -> f64 {
    let bits = mix(mix(seed).wrapping_add(GAMMA.wrapping_mul(u64::from(index) + 1)));
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
