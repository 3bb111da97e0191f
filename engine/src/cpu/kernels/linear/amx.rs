//! The product of bf16 pairs on AMX: see [`super::pair_panel`] for the panel.
//!
//! A tile of rows is 16 rows by 32 inputs, one of weights 32 inputs by 16 outputs; their product is added to a
//! tile of 16 x 16 sums. Up to 16 rows go through all four tiles of weights at a time; more go by 32 rows and two
//! tiles of weights, so that each loaded tile is used twice. The inputs of a sum come in the same order either
//! way. A single row is [`super::amx_row`]'s.

use super::pair_panel::padded;
use super::product::{PANEL, Product, Start};
use super::tiles::Tiles;
use half::bf16;
use std::arch::asm;

/// Rows of a tile.
const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile.
const TILE_BYTES: usize = 64;
/// Inputs of a tile.
const TILE_INPUTS: usize = 32;
/// Bytes of a panel between two neighbouring pairs of inputs.
const PAIR_BYTES: usize = PANEL * 4;
/// Bytes of a panel between two tiles of inputs.
const STEP_BYTES: usize = TILE_INPUTS / 2 * PAIR_BYTES;
/// Inputs that all rows go through before any goes on: as many as keep a panel's part near. The partial
/// sums wait in the output meanwhile, unrounded, since they are f32 either way.
const INPUTS_BLOCK: usize = 512;

/// How far ahead of the weights that up to 16 rows are multiplied with others are asked for, in bytes: more rows
/// take longer than the memory does.
const AHEAD: usize = 8 << 10;

/// Asks for a quarter of a tile of inputs' weights, [`AHEAD`] of those that are multiplied.
macro_rules! ask_for {
    ($quarter:literal) => {
        concat!(
            ".irp line, 0, 64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960\n",
            "prefetcht0 [{w} + {ahead} + 1024 * ",
            $quarter,
            " + \\line]\n",
            ".endr",
        )
    };
}

/// Sums in tiles 0 to 3, rows in 4 and 5, weights in the rest, for up to 32 rows.
fn tiles(rows: usize) -> Tiles {
    let (upper, lower) = (rows.min(TILE_ROWS) as u8, rows.saturating_sub(TILE_ROWS) as u8);
    let all = TILE_ROWS as u8;
    let rows = match lower {
        0 => [upper, upper, upper, upper, upper, all, all, all],
        _ => [upper, upper, lower, lower, upper, lower, all, all],
    };
    Tiles::new(&rows.map(|rows| (rows, TILE_BYTES as u16)))
}

/// Sums of up to 32 rows, in registers.
struct Block {
    /// Where the sums come from; bytes from one row to the next, 0: all are the same.
    start: *const f32,
    start_stride: usize,
    /// Where they go.
    out: *mut f32,
    out_stride: usize,
    x: *const u8,
    x_stride: usize,
    weights: *const u8,
    /// Tiles of inputs, at least one.
    steps: usize,
}

/// See [`super::Form::multiply`].
///
/// # Safety
/// As there; and the process may use AMX.
pub(super) unsafe fn multiply(p: &Product) {
    let inputs = padded(p.inputs);
    let zeros = [0.0f32; PANEL];
    let out_stride = p.out_stride * size_of::<f32>();
    let mut configured = 0;
    for from in (0..inputs).step_by(INPUTS_BLOCK) {
        let steps = (inputs - from).min(INPUTS_BLOCK) / TILE_INPUTS;
        for row in (0..p.rows).step_by(2 * TILE_ROWS) {
            let rows = (p.rows - row).min(2 * TILE_ROWS);
            // SAFETY: rows, outputs and inputs are inside what the fields of `p` describe, and the tiles have the
            // shape that the block takes.
            unsafe {
                if configured != rows {
                    tiles(rows).load();
                    configured = rows;
                }
                let out = p.out.add(row * p.out_stride);
                let (start, start_stride) = match p.start_at(from) {
                    Start::Zero => (zeros.as_ptr(), 0),
                    Start::Bias(bias) => (bias, 0),
                    Start::Out => (out.cast_const(), out_stride),
                };
                let x = p.x.add(row * p.x_stride + from * size_of::<bf16>());
                let weights = p.weights.add(from / 2 * PAIR_BYTES);
                let block = Block { start, start_stride, out, out_stride, x, x_stride: p.x_stride, weights, steps };
                if rows <= TILE_ROWS {
                    block.wide();
                } else {
                    block.high();
                    block.right_half().high();
                }
            }
        }
    }
    // SAFETY: nobody uses the tiles after this.
    unsafe { Tiles::release() };
}

impl Block {
    /// Returns the same rows, 32 outputs further.
    ///
    /// # Safety
    /// The block begins with a panel.
    unsafe fn right_half(&self) -> Self {
        let half = PANEL / 2;
        // SAFETY: the pointers stay in the panel and in the rows.
        unsafe {
            Self { start: self.start.add(half), out: self.out.add(half), weights: self.weights.add(4 * half), ..*self }
        }
    }

    /// Up to 16 rows times 64 outputs.
    ///
    /// # Safety
    /// As [`multiply`]; the tiles are configured for these rows.
    #[inline(always)]
    unsafe fn wide(&self) {
        // SAFETY: what is loaded and stored is what the fields describe; nothing is left in the tiles.
        unsafe {
            asm!(
                "tileloadd tmm0, [{start} + {start_stride}]",
                "tileloadd tmm1, [{start} + {start_stride} + 64]",
                "tileloadd tmm2, [{start} + {start_stride} + 128]",
                "tileloadd tmm3, [{start} + {start_stride} + 192]",
                "2:",
                "tileloadd tmm4, [{x} + {x_stride}]",
                ask_for!("0"),
                "tileloadd tmm5, [{w} + {w_stride}]",
                "tdpbf16ps tmm0, tmm4, tmm5",
                ask_for!("1"),
                "tileloadd tmm6, [{w} + {w_stride} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm6",
                ask_for!("2"),
                "tileloadd tmm7, [{w} + {w_stride} + 128]",
                "tdpbf16ps tmm2, tmm4, tmm7",
                ask_for!("3"),
                "tileloadd tmm5, [{w} + {w_stride} + 192]",
                "tdpbf16ps tmm3, tmm4, tmm5",
                "add {x}, {tile_bytes}",
                "add {w}, {step_bytes}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{out} + {out_stride}], tmm0",
                "tilestored [{out} + {out_stride} + 64], tmm1",
                "tilestored [{out} + {out_stride} + 128], tmm2",
                "tilestored [{out} + {out_stride} + 192], tmm3",
                start = in(reg) self.start,
                start_stride = in(reg) self.start_stride,
                x = inout(reg) self.x => _,
                x_stride = in(reg) self.x_stride,
                w = inout(reg) self.weights => _,
                w_stride = in(reg) PAIR_BYTES,
                steps = inout(reg) self.steps => _,
                out = in(reg) self.out,
                out_stride = in(reg) self.out_stride,
                tile_bytes = const TILE_BYTES,
                step_bytes = const STEP_BYTES,
                ahead = const AHEAD,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// 17 to 32 rows times 32 outputs.
    ///
    /// # Safety
    /// As [`Block::wide`].
    #[inline(always)]
    unsafe fn high(&self) {
        // SAFETY: as there; the lower rows exist.
        unsafe {
            asm!(
                "tileloadd tmm0, [{start} + {start_stride}]",
                "tileloadd tmm1, [{start} + {start_stride} + 64]",
                "tileloadd tmm2, [{lower_start} + {start_stride}]",
                "tileloadd tmm3, [{lower_start} + {start_stride} + 64]",
                "2:",
                "tileloadd tmm4, [{x} + {x_stride}]",
                "tileloadd tmm6, [{w} + {w_stride}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{w} + {w_stride} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{lower_x} + {x_stride}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {x}, {tile_bytes}",
                "add {lower_x}, {tile_bytes}",
                "add {w}, {step_bytes}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{out} + {out_stride}], tmm0",
                "tilestored [{out} + {out_stride} + 64], tmm1",
                "tilestored [{lower_out} + {out_stride}], tmm2",
                "tilestored [{lower_out} + {out_stride} + 64], tmm3",
                start = in(reg) self.start,
                lower_start = in(reg) self.start.byte_add(TILE_ROWS * self.start_stride),
                start_stride = in(reg) self.start_stride,
                x = inout(reg) self.x => _,
                lower_x = inout(reg) self.x.add(TILE_ROWS * self.x_stride) => _,
                x_stride = in(reg) self.x_stride,
                w = inout(reg) self.weights => _,
                w_stride = in(reg) PAIR_BYTES,
                steps = inout(reg) self.steps => _,
                out = in(reg) self.out,
                lower_out = in(reg) self.out.byte_add(TILE_ROWS * self.out_stride),
                out_stride = in(reg) self.out_stride,
                tile_bytes = const TILE_BYTES,
                step_bytes = const STEP_BYTES,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}
