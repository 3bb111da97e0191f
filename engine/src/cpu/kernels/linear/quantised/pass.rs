//! A panel is gone through in passes: some blocks of it at a time, with all rows.

use crate::cpu::kernels::linear::product::Product;
use std::ops::Range;

/// Blocks that all rows go through before any goes on: as many as keep that part of a panel in the L1 cache, unpacked,
/// beside rows. The partial sums wait in the output meanwhile, unrounded, since they are f32 either way.
pub(super) const BLOCKS: usize = 16;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// A pass: some blocks of all rows and of the panel.
pub(super) struct Pass<'a> {
    pub(super) product: &'a Product,
    pub(super) blocks: Range<usize>,
}
