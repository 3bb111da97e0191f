//! A panel of weights in bf16: `[pairs of inputs][64 outputs][2]`. 32 bits hold two neighbouring inputs' weights of one
//! output, which is what the bf16 dot products of AVX-512 and AMX take. Inputs are padded with zeros, in panels and in
//! prepared rows, so that no kernel has a remainder.

/// Inputs are padded to a multiple of this: what a tile of AMX multiplies at once.
pub(super) const INPUTS: usize = 32;

/// Returns the inputs with their padding.
pub(super) fn padded(inputs: usize) -> usize {
    inputs.next_multiple_of(INPUTS)
}
