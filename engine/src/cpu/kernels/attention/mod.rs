//! Paged attention of a tile of queries over one KV head: on AMX, of a cache of bf16, with queries as [`columns`];
//! else with keys and values in [`panels`].
//!
//! Keys come in tiles of 64 absolute positions, whatever the block size. A context is attended to in stretches,
//! which begin at multiples of [`STRETCH`]. A query goes through the tiles of a stretch in rising order, from a softmax
//! state of its own; the states after the stretches are joined in rising order too. So the bits of a query depend on
//! its position and the cache alone. They are the same where threads share its stretches ([`attend_stretches`], then
//! [`join`]) and where one goes through all of them ([`attention`]).

mod arguments;
#[cfg(target_arch = "x86_64")]
mod columns;
mod panels;
mod queries;
mod row_states;
mod scratch;
mod softmax;
mod tile;

#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Avx512Level;
use crate::cpu::simd::Isa;
pub(in crate::cpu) use arguments::{Attention, HEAD_DIM_MAX, KEPT_QUERIES, KeptStates, QUERY_TILE, STRETCH};
use domain::Dtype;
use std::ops::Range;

/// Queries of a tile, at most, but never fewer than [`QUERY_TILE`]: the more there are, the less often keys and
/// values are read.
pub(in crate::cpu) fn queries_max(isa: Isa, dtype: Dtype, head_dim: usize) -> usize {
    match (isa, dtype) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::queries_max(head_dim),
        _ => QUERY_TILE,
    }
}

/// Numbers of the softmax states of [`KEPT_QUERIES`] queries; fewer queries take as many.
pub(in crate::cpu) fn kept_numbers(isa: Isa, dtype: Dtype, head_dim: usize) -> usize {
    match (isa, dtype) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => KEPT_QUERIES * columns::state_numbers(head_dim),
        _ => KEPT_QUERIES * panels::state_numbers(head_dim),
    }
}

/// Attends.
///
/// # Safety
/// The blocks are in the pool and cover every position that the queries attend to, and those are written; the
/// queries can be read and their places in `out` written, and nobody else uses those.
pub(in crate::cpu) unsafe fn attention(isa: Isa, dtype: Dtype, a: &Attention<'_>) {
    // SAFETY: as the caller says.
    unsafe { attend(isa, dtype, a, a.stretches(), None) }
}

/// Attends to some stretches alone, and keeps the states after each. Nothing is written to `out`.
///
/// # Safety
/// As [`attention`], but others may read the queries; and each stretch has room for [`kept_numbers`] of all
/// queries in `kept`, which nobody else uses.
pub(in crate::cpu) unsafe fn attend_stretches(
    isa: Isa,
    dtype: Dtype,
    a: &Attention<'_>,
    stretches: Range<usize>,
    kept: KeptStates,
) {
    // SAFETY: as the caller says.
    unsafe { attend(isa, dtype, a, stretches, Some(kept)) }
}

/// The result, where all stretches of the queries were attended to and kept: so many, which are used up.
///
/// # Safety
/// As [`attention`], for queries and `out`; and nobody else uses what is kept.
pub(in crate::cpu) unsafe fn join(isa: Isa, dtype: Dtype, a: &Attention<'_>, stretches: usize, kept: KeptStates) {
    // SAFETY: as the caller says; the value inside `isa` proves that the CPU has the features.
    unsafe {
        match (isa, dtype) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::join(s, a, stretches, kept),
            _ => panels::join(isa, a, stretches, kept),
        }
    }
}

/// Attends to some stretches: keeps the states after each, or (then they are all) joins them and writes the result.
///
/// # Safety
/// As [`attend_stretches`], or as [`attention`].
unsafe fn attend(isa: Isa, dtype: Dtype, a: &Attention<'_>, stretches: Range<usize>, kept: Option<KeptStates>) {
    // SAFETY: as the caller says; the value inside `isa` proves that the CPU has the features.
    unsafe {
        match (isa, dtype) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512(s), Dtype::Bf16) if s.has(Avx512Level::Amx) => columns::attend(s, a, stretches, kept),
            _ => panels::attend(isa, dtype, a, stretches, kept),
        }
    }
}
