//! The kernel for 16 rows at once, on the tiles of AMX: for prompts and large batches.
//!
//! A tile multiplies 16 rows of 32 activations with the weights of 16 outputs, which are in a panel's order
//! already; formats that are narrower than a byte are unpacked first, a part of a panel that the L1 cache holds.
//! The sums come out as integers, and are scaled and added as everywhere else, while the tiles work on the next
//! block.

use super::super::tiles::Tiles;
use super::block::Block;
use super::dot::{Dot, Vnni};
use super::panels::{Kind, STEP_BYTES, STEPS, Scales, Weights, place, step};
use super::pass::{BLOCKS, LINE, Pass};
use crate::cpu::kernels::linear::product::PANEL;
use crate::cpu::simd::{LANES, Simd};
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Blocks that the tiles are ahead of the sums that are scaled and added: as many as hide their latency.
const AHEAD: usize = 2;
/// Blocks whose sums are kept; a power of two, so that a remainder is cheap.
const RING: usize = (AHEAD + 1).next_power_of_two();

/// Rows of a tile.
pub(super) const ROWS: usize = 16;

/// A part of a panel, unpacked.
#[repr(C, align(64))]
struct Unpacked {
    /// `[block][step][output][4]`, signed; unused where the panel has them like this.
    weights: [[[u8; 4 * PANEL]; STEPS]; BLOCKS],
    /// Of each block; of its first half, where the halves differ.
    scales: [[f32; PANEL]; BLOCKS],
    /// What is subtracted, or the scales of the second half.
    others: [[f32; PANEL]; BLOCKS],
}

/// Sums of 16 rows and 16 outputs; of each half, where they are scaled each.
#[repr(C, align(64))]
struct Sums([[[i32; LANES]; ROWS]; 2]);

/// Multiplies the first rows, as many whole tiles as there are, and returns how many these are.
///
/// # Safety
/// As for [`super::super::Form::multiply`]; this is compiled for AVX-512.
#[inline(always)]
pub(super) unsafe fn multiply<F: Weights>(d: Vnni, pass: &Pass<'_>) -> usize {
    let rows = pass.product.rows / ROWS * ROWS;
    if rows == 0 || !d.has_tiles() {
        return 0;
    }
    let mut unpacked = MaybeUninit::<Unpacked>::uninit();
    // SAFETY: the CPU has tiles, and we may use them; the rest as the caller says.
    unsafe {
        unpack::<F>(d, pass, unpacked.as_mut_ptr());
        let unpacked = unpacked.as_ptr();
        TILES.load();
        for row in (0..rows).step_by(ROWS) {
            for vector in 0..PANEL / LANES {
                tile::<F>(d, pass, unpacked, row, vector);
            }
        }
        Tiles::release();
    }
    rows
}

/// Tiles 0 and 1: sums. 2 and 3: activations and weights. 4 and 5: of half a block.
static TILES: Tiles = Tiles::new(&[(16, 64), (16, 64), (16, 32), (8, 64), (16, 16), (4, 64)]);

/// Unpacks the pass's scales, and its weights where they are narrower than bytes.
#[inline(always)]
unsafe fn unpack<F: Weights>(d: Vnni, pass: &Pass<'_>, to: *mut Unpacked) {
    let s = d.simd();
    for (index, block) in pass.blocks.clone().enumerate() {
        let (group, slab) = place::<F>(block);
        // SAFETY: the blocks are in the panel, and there are no more than are unpacked at once.
        unsafe {
            let (group, slab) = (pass.product.weights.add(group), pass.product.weights.add(slab));
            let (scales, others) = (&raw mut (*to).scales[index], &raw mut (*to).others[index]);
            for vector in 0..PANEL / LANES {
                let at = vector * LANES;
                match F::scales(d, group, slab, vector) {
                    Scales::One(scale) => s.store(scales.cast::<f32>().add(at), scale),
                    Scales::Offset(first, second) | Scales::Halves(first, second) => {
                        s.store(scales.cast::<f32>().add(at), first);
                        s.store(others.cast::<f32>().add(at), second);
                    }
                }
            }
            let weights = (&raw mut (*to).weights[index]).cast::<u8>();
            macro_rules! unpack_step {
                ($($step:literal)*) => {$(
                    for vector in 0..PANEL / LANES {
                        let bytes = step::<Vnni, F>(d, slab.add(F::INTEGERS), $step, vector);
                        let bytes = match F::KIND {
                            Kind::Six => _mm512_sub_epi8(bytes, _mm512_set1_epi8(32)),
                            _ => bytes,
                        };
                        _mm512_store_si512(weights.add($step * 4 * PANEL + vector * STEP_BYTES).cast(), bytes);
                    }
                )*};
            }
            if F::KIND != Kind::Bytes {
                unpack_step!(0 1 2 3 4 5 6 7);
            }
        }
    }
}

/// 16 rows and 16 outputs. While the sums of one block are scaled and added, the tiles work on those after it.
#[inline(always)]
unsafe fn tile<F: Weights>(d: Vnni, pass: &Pass<'_>, unpacked: *const Unpacked, row: usize, vector: usize) {
    let (p, s) = (pass.product, d.simd());
    let mut outs = [s.splat(0.0); ROWS];
    let mut sums = MaybeUninit::<[Sums; RING]>::uninit();
    let sums = sums.as_mut_ptr().cast::<Sums>();
    let count = pass.blocks.len();
    // SAFETY: the rows, the outputs and the blocks exist; the tiles are configured.
    unsafe {
        let x = p.x.add(row * p.x_stride).cast::<Block>().add(pass.blocks.start);
        let out = p.out.add(row * p.out_stride + vector * LANES);
        for (r, value) in outs.iter_mut().enumerate() {
            *value = p.begin(s, pass.blocks.start, vector * LANES, out.add(r * p.out_stride));
        }
        let weights = |index: usize| match F::KIND {
            Kind::Bytes => p.weights.add(place::<F>(pass.blocks.start + index).1 + F::INTEGERS + vector * STEP_BYTES),
            _ => (&raw const (*unpacked).weights[index]).cast::<u8>().add(vector * STEP_BYTES),
        };
        let work = |index: usize| {
            let to = sums.add(index % RING).cast::<i32>();
            let x = x.add(index).cast::<u8>();
            match F::KIND {
                Kind::Six => halves(x, p.x_stride, weights(index), to),
                _ => whole(x, p.x_stride, weights(index), to),
            }
        };
        (0..count.min(AHEAD)).for_each(work);
        for index in 0..count {
            if index + AHEAD < count {
                work(index + AHEAD);
            }
            if row == 0 {
                // This vector's share of the pass after this one, or of the next panel's first: on its way while
                // we multiply.
                let next = p.weights.wrapping_add(place::<F>(pass.blocks.start + index + BLOCKS).1);
                let share = F::SLAB / (PANEL / LANES);
                for line in (0..share).step_by(LINE) {
                    _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(vector * share + line).cast());
                }
            }
            let sums = &*sums.add(index % RING);
            let scale = s.load((&raw const (*unpacked).scales[index]).cast::<f32>().add(vector * LANES));
            let other = (&raw const (*unpacked).others[index]).cast::<f32>().add(vector * LANES);
            for (r, value) in outs.iter_mut().enumerate() {
                let x = &*x.cast::<u8>().add(r * p.x_stride).cast::<Block>().add(index);
                let factor = s.splat(x.scale);
                let sum = |half: usize| _mm512_cvtepi32_ps(_mm512_load_si512(sums.0[half][r].as_ptr().cast()));
                *value = s.fma(sum(0), s.mul(scale, factor), *value);
                match F::KIND {
                    Kind::Bytes => {}
                    Kind::Nibbles => *value = s.fma(s.load(other), s.splat(x.offset), *value),
                    Kind::Six => *value = s.fma(sum(1), s.mul(s.load(other), factor), *value),
                }
            }
        }
        for (r, value) in outs.iter().enumerate() {
            s.store(out.add(r * p.out_stride), *value);
        }
    }
}

/// Multiplies 16 rows of a block with 16 outputs.
///
/// # Safety
/// The tiles are configured, all can be read, and 16 rows of 16 sums written.
#[inline(always)]
unsafe fn whole(x: *const u8, x_stride: usize, weights: *const u8, sums: *mut i32) {
    // SAFETY: as the caller says.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tileloadd tmm2, [{x} + {x_stride}]",
            "tileloadd tmm3, [{weights} + {line}]",
            "tdpbssd tmm0, tmm2, tmm3",
            "tilestored [{sums} + {row}], tmm0",
            x = in(reg) x, x_stride = in(reg) x_stride, weights = in(reg) weights, line = in(reg) 4 * PANEL,
            sums = in(reg) sums, row = in(reg) 4 * LANES,
            out("tmm0") _, out("tmm2") _, out("tmm3") _, options(nostack),
        );
    }
}

/// As [`whole`], with sums of each half: first 16 rows of those of the first, then those of the second.
///
/// # Safety
/// See [`whole`].
#[inline(always)]
unsafe fn halves(x: *const u8, x_stride: usize, weights: *const u8, sums: *mut i32) {
    // SAFETY: as the caller says.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tileloadd tmm4, [{x} + {x_stride}]",
            "tileloadd tmm5, [{weights} + {line}]",
            "tdpbssd tmm0, tmm4, tmm5",
            "tilestored [{sums} + {row}], tmm0",
            "tileloadd tmm4, [{x} + {x_stride} + 16]",
            "tileloadd tmm5, [{weights} + {line} + 1024]",
            "tdpbssd tmm1, tmm4, tmm5",
            "tilestored [{sums} + {row} + 1024], tmm1",
            x = in(reg) x, x_stride = in(reg) x_stride, weights = in(reg) weights, line = in(reg) 4 * PANEL,
            sums = in(reg) sums, row = in(reg) 4 * LANES,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm5") _, options(nostack),
        );
    }
}
