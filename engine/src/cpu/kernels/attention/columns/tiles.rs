//! The two products of attention on AMX, with queries as columns: see [`super`].
//!
//! All tiles are 16 rows of 64 bytes. A sum comes out the same whether 16 or 32 queries are multiplied at a time:
//! for every 32 numbers of a head the rounded query goes first and its rest next.

use crate::cpu::kernels::linear::Tiles;
use std::arch::asm;

/// Bytes of a row of a tile, and of a tile.
const ROW: usize = 64;
const TILE: usize = 16 * ROW;
/// Bytes from one position's scores to the next one's: those of 32 queries.
const SCORES: usize = 2 * ROW;

/// The shapes of all tiles.
pub(super) static TILES: Tiles = Tiles::new(&[(16, ROW as u16); 8]);

/// Keys of 64 positions times queries.
pub(super) struct Scores {
    /// The keys of 16 positions each, and the bytes from one position to the next.
    pub(super) keys: [*const u8; 4],
    pub(super) key_stride: usize,
    /// Queries, 16 each: for every 32 numbers of a head a tile of rounded ones and one of rests.
    pub(super) queries: [*const u32; 2],
    /// 32 numbers of a head each, at least one.
    pub(super) steps: usize,
    /// `[64 positions][32 queries]`.
    pub(super) out: *mut f32,
}

/// Transposed values of 64 positions times weights, added to sums.
pub(super) struct Sums {
    /// For every 16 numbers of a head a tile of 32 positions and one of the next 32.
    pub(super) values: *const u32,
    /// Weights of 16 queries each: a tile of 32 positions and one of the next 32.
    pub(super) weights: [*const u32; 2],
    /// Sums of 16 queries each, a tile for every 16 numbers of a head.
    pub(super) sums: [*mut f32; 2],
    /// 32 numbers of a head each, at least one.
    pub(super) steps: usize,
}

impl Scores {
    /// Of 32 queries.
    ///
    /// # Safety
    /// [`TILES`] are configured, and the memory is there that the fields describe.
    pub(super) unsafe fn of_both(&self) {
        for half in 0..2 {
            // SAFETY: as the caller says; nothing is left in the tiles.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "2:",
                    "tileloadd tmm4, [{k0} + {key_stride}]",
                    "tileloadd tmm6, [{q0} + {row}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm5, [{k1} + {key_stride}]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tileloadd tmm7, [{q1} + {row}]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "tileloadd tmm6, [{q0} + {row} + {tile}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tileloadd tmm7, [{q1} + {row} + {tile}]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {k0}, {row_bytes}",
                    "add {k1}, {row_bytes}",
                    "add {q0}, 2 * {tile}",
                    "add {q1}, 2 * {tile}",
                    "dec {steps}",
                    "jnz 2b",
                    "tilestored [{out} + {out_stride}], tmm0",
                    "tilestored [{out} + {out_stride} + {row_bytes}], tmm1",
                    "tilestored [{out} + {out_stride} + 2 * {tile}], tmm2",
                    "tilestored [{out} + {out_stride} + 2 * {tile} + {row_bytes}], tmm3",
                    k0 = inout(reg) self.keys[2 * half] => _,
                    k1 = inout(reg) self.keys[2 * half + 1] => _,
                    key_stride = in(reg) self.key_stride,
                    q0 = inout(reg) self.queries[0] => _,
                    q1 = inout(reg) self.queries[1] => _,
                    row = in(reg) ROW,
                    steps = inout(reg) self.steps => _,
                    out = in(reg) self.out.byte_add(half * 2 * 16 * SCORES),
                    out_stride = in(reg) SCORES,
                    tile = const TILE,
                    row_bytes = const ROW,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    }

    /// Of the first 16 queries.
    ///
    /// # Safety
    /// As [`Scores::of_both`].
    pub(super) unsafe fn of_first(&self) {
        // SAFETY: as there.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{q} + {row}]",
                "tileloadd tmm5, [{q} + {row} + {tile}]",
                "tileloadd tmm6, [{k0} + {key_stride}]",
                "tdpbf16ps tmm0, tmm6, tmm4",
                "tileloadd tmm7, [{k1} + {key_stride}]",
                "tdpbf16ps tmm1, tmm7, tmm4",
                "tileloadd tmm6, [{k2} + {key_stride}]",
                "tdpbf16ps tmm2, tmm6, tmm4",
                "tileloadd tmm7, [{k3} + {key_stride}]",
                "tdpbf16ps tmm3, tmm7, tmm4",
                "tileloadd tmm6, [{k0} + {key_stride}]",
                "tdpbf16ps tmm0, tmm6, tmm5",
                "tileloadd tmm7, [{k1} + {key_stride}]",
                "tdpbf16ps tmm1, tmm7, tmm5",
                "tileloadd tmm6, [{k2} + {key_stride}]",
                "tdpbf16ps tmm2, tmm6, tmm5",
                "tileloadd tmm7, [{k3} + {key_stride}]",
                "tdpbf16ps tmm3, tmm7, tmm5",
                "add {k0}, {row_bytes}",
                "add {k1}, {row_bytes}",
                "add {k2}, {row_bytes}",
                "add {k3}, {row_bytes}",
                "add {q}, 2 * {tile}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{out} + {out_stride}], tmm0",
                "tilestored [{out} + {out_stride} + 2 * {tile}], tmm1",
                "tilestored [{out} + {out_stride} + 4 * {tile}], tmm2",
                "tilestored [{out} + {out_stride} + 6 * {tile}], tmm3",
                k0 = inout(reg) self.keys[0] => _,
                k1 = inout(reg) self.keys[1] => _,
                k2 = inout(reg) self.keys[2] => _,
                k3 = inout(reg) self.keys[3] => _,
                key_stride = in(reg) self.key_stride,
                q = inout(reg) self.queries[0] => _,
                row = in(reg) ROW,
                steps = inout(reg) self.steps => _,
                out = in(reg) self.out,
                out_stride = in(reg) SCORES,
                tile = const TILE,
                row_bytes = const ROW,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

impl Sums {
    /// Of 32 queries.
    ///
    /// # Safety
    /// As [`Scores::of_both`].
    pub(super) unsafe fn add_both(&self) {
        // SAFETY: as there.
        unsafe {
            asm!(
                "2:",
                "tileloadd tmm0, [{s0} + {row}]",
                "tileloadd tmm1, [{s1} + {row}]",
                "tileloadd tmm2, [{s0} + {row} + {tile}]",
                "tileloadd tmm3, [{s1} + {row} + {tile}]",
                "tileloadd tmm4, [{v} + {row}]",
                "tileloadd tmm6, [{w0} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{w1} + {row}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{v} + {row} + 2 * {tile}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm4, [{v} + {row} + {tile}]",
                "tileloadd tmm6, [{w0} + {row} + {tile}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{w1} + {row} + {tile}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{v} + {row} + 3 * {tile}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tilestored [{s0} + {row}], tmm0",
                "tilestored [{s1} + {row}], tmm1",
                "tilestored [{s0} + {row} + {tile}], tmm2",
                "tilestored [{s1} + {row} + {tile}], tmm3",
                "add {v}, 4 * {tile}",
                "add {s0}, 2 * {tile}",
                "add {s1}, 2 * {tile}",
                "dec {steps}",
                "jnz 2b",
                v = inout(reg) self.values => _,
                w0 = in(reg) self.weights[0],
                w1 = in(reg) self.weights[1],
                s0 = inout(reg) self.sums[0] => _,
                s1 = inout(reg) self.sums[1] => _,
                row = in(reg) ROW,
                steps = inout(reg) self.steps => _,
                tile = const TILE,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// Of the first 16 queries.
    ///
    /// # Safety
    /// As [`Scores::of_both`].
    pub(super) unsafe fn add_first(&self) {
        // SAFETY: as there.
        unsafe {
            asm!(
                "tileloadd tmm6, [{w} + {row}]",
                "tileloadd tmm7, [{w} + {row} + {tile}]",
                "2:",
                "tileloadd tmm0, [{s} + {row}]",
                "tileloadd tmm2, [{s} + {row} + {tile}]",
                "tileloadd tmm4, [{v} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{v} + {row} + 2 * {tile}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tileloadd tmm4, [{v} + {row} + {tile}]",
                "tdpbf16ps tmm0, tmm4, tmm7",
                "tileloadd tmm5, [{v} + {row} + 3 * {tile}]",
                "tdpbf16ps tmm2, tmm5, tmm7",
                "tilestored [{s} + {row}], tmm0",
                "tilestored [{s} + {row} + {tile}], tmm2",
                "add {v}, 4 * {tile}",
                "add {s}, 2 * {tile}",
                "dec {steps}",
                "jnz 2b",
                v = inout(reg) self.values => _,
                w = in(reg) self.weights[0],
                s = inout(reg) self.sums[0] => _,
                row = in(reg) ROW,
                steps = inout(reg) self.steps => _,
                tile = const TILE,
                out("tmm0") _, out("tmm2") _, out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}
