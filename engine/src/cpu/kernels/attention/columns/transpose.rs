//! Transposes, since tiles take queries as columns and numbers of a head as rows: queries before the products, values
//! between them, and the result behind them.

use super::kv_rows::KvRows;
use super::lane_states::LaneStates;
use super::shapes::{COLUMNS, DEPTH, ROWS, padded};
use crate::cpu::kernels::attention::arguments::Attention;
use crate::cpu::kernels::attention::queries::{Split, split};
use crate::cpu::kernels::attention::tile::POSITIONS;
use crate::cpu::simd::{Avx512, Isa, LANES, Simd};
use half::bf16;
use std::arch::x86_64::*;

/// Makes columns of 16 queries, in two parts: rounded, and what that left out. Scores come in units of ln 2, but
/// for those that are capped.
///
/// # Safety
/// The queries can be read, `rows` has room for 16 of them in two parts, `to` for their columns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
pub(super) unsafe fn transpose_queries(s: Avx512, a: &Attention<'_>, group: usize, rows: *mut bf16, to: *mut u32) {
    let depth = padded(a.head_dim);
    let scale = if a.cap.is_some() { a.scale } else { a.scale * std::f32::consts::LOG2_E };
    // SAFETY: as the caller says; lanes are below 16 and numbers below `depth`.
    unsafe {
        for lane in 0..COLUMNS {
            let (rounded, rest) = (rows.add(lane * depth), rows.add((COLUMNS + lane) * depth));
            let query = group * COLUMNS + lane;
            if query < a.count {
                let x = a.queries.add(a.offset(a.first + query, a.query_stride));
                split(Isa::Avx512(s), &Split { x, count: a.head_dim, scale, padded: depth, rounded, rest });
            } else {
                rounded.write_bytes(0, depth);
                rest.write_bytes(0, depth);
            }
        }
        for step in 0..depth / DEPTH {
            for part in 0..2 {
                let mut square = [s.splat(0.0); LANES];
                for (lane, row) in square.iter_mut().enumerate() {
                    *row = s.load(rows.add((part * COLUMNS + lane) * depth + step * DEPTH).cast());
                }
                for (pair, columns) in s.transpose(square).iter().enumerate() {
                    s.store(to.add(((2 * step + part) * ROWS + pair) * COLUMNS).cast(), *columns);
                }
            }
        }
    }
}

/// Transposes the values of 64 positions: numbers of a head become rows, pairs of positions columns.
///
/// # Safety
/// The rows can be read, and `to` has room for them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
pub(super) unsafe fn transpose_values(s: Avx512, rows: &[KvRows; POSITIONS / ROWS], depth: usize, to: *mut u32) {
    for (half, rows) in rows.chunks_exact(2).enumerate() {
        for number in (0..depth).step_by(DEPTH) {
            // In each quarter of a vector the low halves of two rows' numbers are zipped, or the high ones.
            let (mut low, mut high) = ([s.splat(0.0); LANES], [s.splat(0.0); LANES]);
            for pair in 0..LANES {
                let row = pair % (LANES / 2) * 2;
                // SAFETY: rows are below 16 and numbers below `depth`.
                unsafe {
                    let even = rows[pair / (LANES / 2)].values.add(row * depth + number);
                    let (even, odd) = (_mm512_loadu_si512(even.cast()), _mm512_loadu_si512(even.add(depth).cast()));
                    low[pair] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(even, odd));
                    high[pair] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(even, odd));
                }
            }
            for (quarter, square) in [low, high].into_iter().enumerate() {
                for (i, columns) in s.transpose(square).iter().enumerate() {
                    let number = number + i / 4 * 8 + quarter * 4 + i % 4;
                    let tile = number / ROWS * 2 + half;
                    // SAFETY: the tile's row is inside.
                    unsafe { s.store(to.add((tile * ROWS + number % ROWS) * LANES).cast(), *columns) };
                }
            }
        }
    }
}

/// Divides the sums of 16 queries by their totals, and transposes them into rows of the result.
///
/// # Safety
/// The queries' places in `out` can be written, their states read.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
pub(super) unsafe fn finish(s: Avx512, a: &Attention<'_>, group: usize, states: LaneStates) {
    // SAFETY: as the caller says; what is stored is below `head_dim`.
    unsafe {
        let total = s.load(states.total());
        for number in (0..a.head_dim).step_by(LANES) {
            let mut square = [s.splat(0.0); LANES];
            for (i, row) in square.iter_mut().enumerate() {
                *row = s.div(s.load(states.sums().add((number + i) * LANES)), total);
            }
            let rows = s.transpose(square);
            for (query, row) in (group * COLUMNS..a.count).zip(rows) {
                let out = a.out.add(a.offset(a.first + query, a.out_stride) + number);
                let numbers = a.head_dim - number;
                let stored = if numbers >= LANES { u16::MAX } else { (1 << numbers) - 1 };
                _mm512_mask_storeu_ps(out, stored, row);
            }
        }
    }
}
