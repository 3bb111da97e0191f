//! The loops for instruction sets of x86-64: as the parent's, with as many registers as there are.

use super::arithmetic::{Arithmetic, Products, sum_words};
use crate::cpu::kernels::Tiles;
use crate::cpu::simd::{Avx512, Avx512Level};
use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::black_box;

/// Registers of sums: so many that the latency of each product is hidden.
const VECTORS: usize = 12;
/// Tiles of sums.
const TILES: usize = 4;
/// Rows of a tile, and bytes of a row.
const TILE_ROWS: usize = 16;
const TILE_BYTES: usize = 64;

pub(super) fn products_of_avx2(arithmetic: Arithmetic) -> Option<Products> {
    let operations = 2 * VECTORS * size_of::<__m256>() / size_of::<f32>();
    (arithmetic == Arithmetic::F32).then_some(Products { operations, rounds: with_avx2 })
}

pub(super) fn products_of_avx512(s: Avx512, arithmetic: Arithmetic) -> Option<Products> {
    let (vectors, tiles) = (2 * VECTORS * size_of::<__m512>(), 2 * TILES * TILE_ROWS * TILE_ROWS * TILE_BYTES);
    match arithmetic {
        Arithmetic::F32 => Some(Products { operations: vectors / size_of::<f32>(), rounds: with_avx512 }),
        Arithmetic::Bf16 if s.has(Avx512Level::Amx) => {
            Some(Products { operations: tiles / size_of::<u16>(), rounds: tiles_of_bf16 })
        }
        Arithmetic::Bf16 if s.has(Avx512Level::Bf16) => {
            Some(Products { operations: vectors / size_of::<u16>(), rounds: dots_of_bf16 })
        }
        Arithmetic::Int8 if s.has(Avx512Level::Amx) => Some(Products { operations: tiles, rounds: tiles_of_bytes }),
        Arithmetic::Int8 if s.has(Avx512Level::Vnni) => Some(Products { operations: vectors, rounds: dots_of_bytes }),
        Arithmetic::Bf16 | Arithmetic::Int8 => None,
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn with_avx2(rounds: usize) {
    let (factor, term) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
    let mut sums = [term; VECTORS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, term);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f,avx2,fma,f16c")]
fn with_avx512(rounds: usize) {
    let (factor, term) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
    let mut sums = [term; VECTORS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, term);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn dots_of_bf16(rounds: usize) {
    let mut sums = [_mm512_setzero_ps(); VECTORS];
    let pairs = black_box(_mm512_set1_epi32(0x3c00_3c00));
    // SAFETY: both are 512 bits without invalid values.
    let pairs = unsafe { std::mem::transmute::<__m512i, __m512bh>(pairs) };
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, pairs, pairs);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dots_of_bytes(rounds: usize) {
    let mut sums = [_mm512_setzero_si512(); VECTORS];
    let bytes = black_box(_mm512_set1_epi8(1));
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, bytes, bytes);
        }
    }
    black_box(sums);
}

/// Defines a function that multiplies tiles so many rounds.
macro_rules! tiles {
    ($name:ident, $product:literal) => {
        /// # Safety
        /// The process may use AMX.
        unsafe fn $name(rounds: usize) {
            let tiles = Tiles::new(&[(TILE_ROWS as u8, TILE_BYTES as u16); 8]);
            // SAFETY: as the caller says; whole tiles are configured, and nobody uses them after this. Zeros take
            // as long as other numbers.
            unsafe {
                tiles.load();
                asm!(
                    "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                    "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                    "2:",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    concat!($product, " tmm1, tmm4, tmm7"),
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "dec {rounds}",
                    "jnz 2b",
                    rounds = inout(reg) rounds => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, nomem),
                );
                Tiles::release();
            }
        }
    };
}
tiles!(tiles_of_bf16, "tdpbf16ps");
tiles!(tiles_of_bytes, "tdpbssd");

pub(super) fn sum_with_avx512(bytes: &[u8]) -> u64 {
    #[target_feature(enable = "avx512f")]
    fn sum(bytes: &[u8]) -> u64 {
        sum_words(bytes)
    }
    // SAFETY: the caller holds an instruction set that has it.
    unsafe { sum(bytes) }
}

pub(super) fn sum_with_avx2(bytes: &[u8]) -> u64 {
    #[target_feature(enable = "avx2")]
    fn sum(bytes: &[u8]) -> u64 {
        sum_words(bytes)
    }
    // SAFETY: as above.
    unsafe { sum(bytes) }
}
