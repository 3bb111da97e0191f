//! Positions of the cache as the tiles of AMX take them, and as they are asked for ahead of that.

use super::{DEPTH, POSITIONS, ROWS, padded};
use crate::cpu::kernels::attention::Attention;
use half::bf16;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// Keys and values of 16 positions as they lie: `depth` numbers from one position to the next.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) keys: *const bf16,
    pub(super) values: *const bf16,
}

/// What is asked for while scores are weighed: the positions of a later tile, 16 each, as far as they lie in rows.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead {
    parts: [Option<Part>; POSITIONS / ROWS],
    /// Bytes of a part's keys, and of its values.
    bytes: usize,
}

impl Attention<'_> {
    /// The 64 positions from `base` on, 16 each: as they lie where the cache has all 16 in a row, else copied. In
    /// place of positions before `from` and from `to` on, which may not be there, stand the nearest that are.
    ///
    /// # Safety
    /// The positions `from..to` are covered by the blocks, and there is room for 64 keys and 64 values behind `copied`.
    pub(super) unsafe fn parts(
        &self,
        base: usize,
        from: usize,
        to: usize,
        copied: *mut bf16,
    ) -> [Part; POSITIONS / ROWS] {
        let depth = padded(self.head_dim);
        let mut parts = [Part { keys: std::ptr::null(), values: std::ptr::null() }; POSITIONS / ROWS];
        for (i, part) in parts.iter_mut().enumerate() {
            let begin = base + i * ROWS;
            // SAFETY: as the caller says.
            unsafe {
                if self.lies_in_rows(begin, from, to) {
                    *part = self.at(begin);
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
                *part = Part { keys, values };
            }
        }
        parts
    }

    /// Whether tiles can take the 16 positions from `begin` on as they lie: those `from..to` are there.
    fn lies_in_rows(&self, begin: usize, from: usize, to: usize) -> bool {
        let one_block = begin / self.block_tokens == (begin + ROWS - 1) / self.block_tokens;
        self.head_dim.is_multiple_of(DEPTH) && begin >= from && begin + ROWS <= to && one_block
    }

    /// Keys and values from a position on, to the end of its block.
    ///
    /// # Safety
    /// The blocks cover the position.
    unsafe fn at(&self, position: usize) -> Part {
        let (block, offset) = (position / self.block_tokens, position % self.block_tokens);
        // SAFETY: the block is in the table and in the pool, as the caller says.
        unsafe {
            let block = self.blocks.get_unchecked(block - self.first_block).0 as usize;
            let keys = self.pool.add(block * self.record_bytes).cast::<bf16>().add(offset * self.head_dim);
            Part { keys, values: keys.add(self.block_tokens * self.head_dim) }
        }
    }

    /// The 64 positions from `base` on, to be asked for, as far as they are before `end`.
    ///
    /// # Safety
    /// The blocks cover what is before `end`.
    pub(super) unsafe fn ahead(&self, base: usize, end: usize) -> Ahead {
        let mut ahead = Ahead { bytes: ROWS * self.head_dim * size_of::<bf16>(), ..Ahead::default() };
        for (i, part) in ahead.parts.iter_mut().enumerate() {
            let begin = base + i * ROWS;
            // SAFETY: as the caller says.
            *part = self.lies_in_rows(begin, base, end).then(|| unsafe { self.at(begin) });
        }
        ahead
    }
}

impl Ahead {
    /// Asks for one of [`POSITIONS`]` / 2` shares: all at once would wait for each other.
    ///
    /// # Safety
    /// The parts are in the pool.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn ask_for(&self, share: usize) {
        const SHARES: usize = ROWS / 2;
        let Some(Part { keys, values }) = self.parts[share / SHARES] else { return };
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
