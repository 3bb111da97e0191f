//! Integers of a few bits, as files pack them into words.

use std::ops::Range;

/// Lines that are read at a time where columns are wanted.
const TILE_LINES: usize = 64;

/// A matrix of integers of 1 to 8 bits, packed without gaps along one dimension: each line is a stream of bits in
/// little-endian words of 32 bits, lowest bits first.
#[derive(Clone, Debug)]
pub(super) struct Codes<'a> {
    pub(super) bytes: &'a [u8],
    /// Bits of an integer.
    pub(super) bits: u32,
    /// Bytes from the first word of a line to that of the next one.
    pub(super) line_stride: usize,
    /// Bytes from a word of a line to its next one.
    pub(super) word_stride: usize,
    pub(super) order: CodeOrder,
}

/// In which order a word has its integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeOrder {
    /// In order.
    AsStored,
    /// As AWQ has its eight: first 0, 2, 4 and 6, then 1, 3, 5 and 7.
    EvenFirst,
}

impl CodeOrder {
    /// Returns where integer `index` of a line is, counted in integers.
    fn place(self, index: usize) -> usize {
        match self {
            Self::AsStored => index,
            Self::EvenFirst => index / 8 * 8 + index % 2 * 4 + index % 8 / 2,
        }
    }
}

impl Codes<'_> {
    /// Returns integer `index` of a line.
    pub(super) fn at(&self, line: usize, index: usize) -> u8 {
        let bit = self.order.place(index) * self.bits as usize;
        let (word, shift) = (bit / 32, (bit % 32) as u32);
        let mut code = self.word(line, word) >> shift;
        if shift + self.bits > 32 {
            code |= self.word(line, word + 1) << (32 - shift);
        }
        (code & ((1 << self.bits) - 1)) as u8
    }

    /// Reads a line from its beginning. Its words have their integers in order.
    pub(super) fn read_line(&self, line: usize, out: &mut [u8]) {
        let (mut word, mut held, mut held_bits) = (0, 0u64, 0);
        for code in out {
            if held_bits < self.bits {
                held |= u64::from(self.word(line, word)) << held_bits;
                (word, held_bits) = (word + 1, held_bits + 32);
            }
            *code = (held & ((1 << self.bits) - 1)) as u8;
            held >>= self.bits;
            held_bits -= self.bits;
        }
    }

    /// Reads the integers `columns` of each line, none of which lies in two words. `out` gets one of each line for the
    /// first column, then those of the next. Some lines are read at a time, since writes that lie far apart drive each
    /// other out of the cache.
    pub(super) fn read_columns(&self, columns: Range<usize>, lines: usize, out: &mut [u8]) {
        let (per_word, mask) = (32 / self.bits as usize, ((1u32 << self.bits) - 1) as u8);
        let shifts: [u32; 32] = std::array::from_fn(|index| self.order.place(index % per_word) as u32 * self.bits);
        let mut tile = vec![0; columns.len() * TILE_LINES];
        for first in (0..lines).step_by(TILE_LINES) {
            let count = TILE_LINES.min(lines - first);
            for line in 0..count {
                let mut codes = tile[line..].iter_mut().step_by(TILE_LINES);
                for word in columns.start / per_word..columns.end.div_ceil(per_word) {
                    let (held, before) = (self.word(first + line, word), word * per_word);
                    let from = columns.start.saturating_sub(before);
                    let to = (columns.end - before).min(per_word);
                    for (shift, code) in shifts[from..to].iter().zip(&mut codes) {
                        *code = (held >> shift) as u8 & mask;
                    }
                }
            }
            for (tile, out) in tile.chunks_exact(TILE_LINES).zip(out.chunks_exact_mut(lines)) {
                out[first..first + count].copy_from_slice(&tile[..count]);
            }
        }
    }

    fn word(&self, line: usize, word: usize) -> u32 {
        let at = line * self.line_stride + word * self.word_stride;
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }
}
