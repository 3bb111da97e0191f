//! The memory that one call works on.

use super::arguments::{HEAD_DIM_MAX, QUERY_TILE};
use super::tile::POSITIONS;
use crate::cpu::simd::LANES;
use half::bf16;
use std::mem::MaybeUninit;

/// What a tile of queries works on; large, so left uninitialised where it is not used.
#[repr(C, align(64))]
pub(super) struct Scratch {
    /// Prepared queries: f32, or two parts in bf16, all queries' first ones first.
    pub(super) queries: [MaybeUninit<f32>; QUERY_TILE * HEAD_DIM_MAX],
    /// A panel with 64 positions as outputs.
    pub(super) keys: [MaybeUninit<f32>; HEAD_DIM_MAX * POSITIONS],
    /// Panels with 64 positions as inputs.
    pub(super) values: [MaybeUninit<f32>; POSITIONS * HEAD_DIM_MAX],
    /// `[queries][64 positions]`.
    pub(super) scores: [MaybeUninit<f32>; QUERY_TILE * POSITIONS],
    /// What becomes of the scores where values are bf16.
    pub(super) weights: [MaybeUninit<bf16>; QUERY_TILE * POSITIONS],
    /// States of the queries after all stretches that are behind, and after the one that is not.
    pub(super) states: [[MaybeUninit<f32>; QUERY_TILE * (HEAD_DIM_MAX + LANES)]; 2],
}
