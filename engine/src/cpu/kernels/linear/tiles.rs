//! The configuration of AMX's tiles: which shape each of the 8 has, until they are released.

use std::arch::asm;

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
pub(in crate::cpu) struct Tiles {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row, tile by tile.
    row_bytes: [u16; 16],
    /// Rows, tile by tile.
    rows: [u8; 16],
}

impl Tiles {
    /// The first tiles have these rows, of so many bytes each; the others are not used.
    pub(in crate::cpu) const fn new(shapes: &[(u8, u16)]) -> Self {
        let mut tiles = Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < shapes.len() {
            (tiles.rows[tile], tiles.row_bytes[tile]) = shapes[tile];
            tile += 1;
        }
        tiles
    }

    /// Configures this thread's tiles.
    ///
    /// # Safety
    /// The process may use AMX.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn load(&self) {
        // SAFETY: the configuration is valid; the tiles' contents are nobody's.
        unsafe { asm!("ldtilecfg [{}]", in(reg) self, options(nostack, readonly)) };
    }

    /// Gives this thread's tiles back.
    ///
    /// # Safety
    /// The process may use AMX, and nobody uses the contents of the tiles after this.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn release() {
        // SAFETY: as the caller says.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
