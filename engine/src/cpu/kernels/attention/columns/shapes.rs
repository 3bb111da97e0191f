//! The shapes of tiles.

use crate::cpu::simd::LANES;

/// Queries of a group: columns of a tile, lanes of a vector.
pub(super) const COLUMNS: usize = LANES;
/// Groups that are multiplied at a time.
pub(super) const GROUPS: usize = 2;
/// Positions that are rows of a tile.
pub(super) const ROWS: usize = 16;
/// Numbers of a head, or positions, that are a row of a tile.
pub(super) const DEPTH: usize = 32;

/// Numbers of a head with their padding.
pub(super) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(DEPTH)
}
