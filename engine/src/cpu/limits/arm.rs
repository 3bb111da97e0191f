//! The loops for instruction sets of ARM: as the parent's, with as many registers as there are.

use super::arithmetic::{Arithmetic, Products};
use crate::cpu::simd::Neon;
use std::arch::aarch64::*;
use std::arch::asm;
use std::hint::black_box;

/// Registers of sums: so many that the latency of each product is hidden.
const VECTORS: usize = 16;

pub(super) fn products_of_neon(s: Neon, arithmetic: Arithmetic) -> Option<Products> {
    let bytes = 2 * VECTORS * size_of::<float32x4_t>();
    match arithmetic {
        Arithmetic::F32 => Some(Products { operations: bytes / size_of::<f32>(), rounds: with_neon }),
        Arithmetic::Int8 if s.has_dotprod() => Some(Products { operations: bytes, rounds: dots_of_bytes }),
        Arithmetic::Bf16 | Arithmetic::Int8 => None,
    }
}

#[target_feature(enable = "neon")]
fn with_neon(rounds: usize) {
    let (factor, term) = (vdupq_n_f32(black_box(0.999)), vdupq_n_f32(black_box(0.001)));
    let mut sums = [term; VECTORS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = vfmaq_f32(term, *sum, factor);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "neon,dotprod")]
fn dots_of_bytes(rounds: usize) {
    let mut sums = [vdupq_n_s32(0); VECTORS];
    let bytes = black_box(vdupq_n_s8(1));
    for _ in 0..rounds {
        for sum in &mut sums {
            // SAFETY: this function asks for the instruction, which touches registers alone.
            unsafe {
                asm!(
                    "sdot {sum:v}.4s, {bytes:v}.16b, {bytes:v}.16b",
                    sum = inout(vreg) *sum, bytes = in(vreg) bytes,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
        }
    }
    black_box(sums);
}
