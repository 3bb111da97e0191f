//! Tiles of queries: what one task of attention takes, for each KV head.

use super::kernels::{KEPT_QUERIES, QUERY_TILE};
use std::ops::Range;

/// Tasks of attention for each thread, if queries can be divided so far: as many as let threads end together, for later
/// queries attend to more.
const ATTENTION_TASKS_PER_THREAD: usize = 4;

/// What decides how many queries are a tile, and whether tiles are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    /// Query heads per KV head.
    pub(super) group: usize,
    /// KV heads: each is a task of every tile.
    pub(super) kv_heads: usize,
    /// Queries that the kernel takes, at most.
    pub(super) queries_max: usize,
    /// Threads that share the tasks.
    pub(super) threads: usize,
    /// Numbers that the kernel keeps of [`KEPT_QUERIES`] queries after a stretch.
    pub(super) kept_numbers: usize,
}

/// Queries of a span that one task attends with, for each KV head.
#[derive(Clone, Debug)]
pub(super) struct QueryTile {
    /// The span.
    pub(super) span: usize,
    /// Its first input row.
    pub(super) row: usize,
    /// The first query; see `kernels::Attention`.
    pub(super) first: usize,
    /// Queries.
    pub(super) count: usize,
    /// Absolute positions of their rows.
    pub(super) positions: Range<usize>,
}

impl Tiling {
    /// Tasks that there are to be, at least.
    pub(super) fn tasks_wanted(&self) -> usize {
        ATTENTION_TASKS_PER_THREAD * self.threads
    }

    /// Numbers that are kept after a stretch of a tile of so many queries, of all KV heads.
    pub(super) fn kept(&self, queries: usize) -> usize {
        queries.div_ceil(KEPT_QUERIES) * self.kept_numbers * self.kv_heads
    }

    /// Queries of a tile in a micro-batch of so many rows.
    pub(super) fn tile(&self, rows: usize) -> usize {
        let mut tile = self.queries_max;
        while tile / 2 >= QUERY_TILE && (rows * self.group).div_ceil(tile) * self.kv_heads < self.tasks_wanted() {
            tile /= 2;
        }
        tile
    }
}
