//! How much a run measures.

/// Prompts of a length, which take turns.
pub(crate) const TURNS: usize = 3;
/// What the device holds, in prompts: more than one, and less than all but one of them.
pub(crate) const DEVICE_PROMPTS: f64 = 1.5;
/// Tokens by which decoding is measured.
pub(crate) const DECODED: u32 = 32;
/// Rounds of a run, at most.
pub(crate) const ROUNDS_MAX: usize = 1000;
/// Lengths of a run, at most.
pub(crate) const LENGTHS_MAX: usize = 16;
