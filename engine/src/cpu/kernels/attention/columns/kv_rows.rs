//! Keys and values of the cache as the tiles of AMX take them, and their prefetch.

use super::shapes::{DEPTH, ROWS, padded};
use crate::cpu::kernels::attention::arguments::Attention;
use crate::cpu::kernels::attention::tile::POSITIONS;
use half::bf16;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// Keys and values of 16 positions as they lie: `depth` numbers from one position to the next.
#[derive(Clone, Copy)]
pub(super) struct KvRows {
    pub(super) keys: *const bf16,
    pub(super) values: *const bf16,
}

/// What is prefetched while scores are weighed: the positions of a later tile, 16 each, as far as they lie in rows.
#[derive(Clone, Copy, Default)]
pub(super) struct Prefetch {
    rows: [Option<KvRows>; POSITIONS / ROWS],
    /// Bytes of the keys of 16 positions, and of their values.
    bytes: usize,
}

impl Attention<'_> {
    /// Returns the 64 positions from `base` on, 16 each: as they lie where the cache has all 16 in a row, else copied.
    /// In place of positions before `from` and from `to` on, which may not be there, stand the nearest that are.
    ///
    /// # Safety
    /// The positions `from..to` are covered by the blocks, and there is room for 64 keys and 64 values behind `copied`.
    pub(super) unsafe fn kv_rows(
        &self,
        base: usize,
        from: usize,
        to: usize,
        copied: *mut bf16,
    ) -> [KvRows; POSITIONS / ROWS] {
        let depth = padded(self.head_dim);
        let mut tiles = [KvRows { keys: std::ptr::null(), values: std::ptr::null() }; POSITIONS / ROWS];
        for (i, rows) in tiles.iter_mut().enumerate() {
            let begin = base + i * ROWS;
            // SAFETY: as the caller says.
            unsafe {
                if self.lies_in_rows(begin, from, to) {
                    *rows = self.at(begin);
                    continue;
                }
                let (keys, values) = (copied.add(2 * i * ROWS * depth), copied.add((2 * i + 1) * ROWS * depth));
                for row in 0..ROWS {
                    let position = self.at((begin + row).clamp(from, to - 1));
                    for (to, from) in [(keys, position.keys), (values, position.values)] {
                        to.add(row * depth).copy_from_nonoverlapping(from, self.head_dim);
                        to.add(row * depth + self.head_dim).write_bytes(0, depth - self.head_dim);
                    }
                }
                *rows = KvRows { keys, values };
            }
        }
        tiles
    }

    /// Returns whether tiles can take the 16 positions from `begin` on as they lie: those `from..to` are there.
    fn lies_in_rows(&self, begin: usize, from: usize, to: usize) -> bool {
        let one_block = begin / self.block_tokens == (begin + ROWS - 1) / self.block_tokens;
        self.head_dim.is_multiple_of(DEPTH) && begin >= from && begin + ROWS <= to && one_block
    }

    /// Keys and values from a position on, to the end of its block.
    ///
    /// # Safety
    /// The blocks cover the position.
    unsafe fn at(&self, position: usize) -> KvRows {
        let (block, offset) = (position / self.block_tokens, position % self.block_tokens);
        // SAFETY: the block is in the table and in the pool, as the caller says.
        unsafe {
            let block = self.blocks.get_unchecked(block - self.first_block).0 as usize;
            let keys = self.pool.add(block * self.record_bytes).cast::<bf16>().add(offset * self.head_dim);
            KvRows { keys, values: keys.add(self.block_tokens * self.head_dim) }
        }
    }

    /// The prefetch of the 64 positions from `base` on, as far as they are before `end`.
    ///
    /// # Safety
    /// The blocks cover what is before `end`.
    pub(super) unsafe fn prefetch(&self, base: usize, end: usize) -> Prefetch {
        let mut prefetch = Prefetch { bytes: ROWS * self.head_dim * size_of::<bf16>(), ..Prefetch::default() };
        for (i, rows) in prefetch.rows.iter_mut().enumerate() {
            let begin = base + i * ROWS;
            // SAFETY: as the caller says.
            *rows = self.lies_in_rows(begin, base, end).then(|| unsafe { self.at(begin) });
        }
        prefetch
    }
}

impl Prefetch {
    /// Prefetches one of [`POSITIONS`]` / 2` shares: all at once would wait for each other.
    ///
    /// # Safety
    /// The rows are in the pool.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn issue(&self, share: usize) {
        const SHARES: usize = ROWS / 2;
        let Some(KvRows { keys, values }) = self.rows[share / SHARES] else { return };
        let bytes = self.bytes / SHARES;
        for line in (share % SHARES * bytes..(share % SHARES + 1) * bytes).step_by(64) {
            // SAFETY: the lines are in the block.
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(keys.cast::<i8>().add(line));
                _mm_prefetch::<_MM_HINT_T1>(values.cast::<i8>().add(line));
            }
        }
    }
}
