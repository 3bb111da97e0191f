//! How far the reads of a transfer are.

use crate::transfer::Piece;

/// Where in the runs of a transfer the next bytes are. A run has a piece at least, and a piece a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) run: usize,
    pub(crate) piece: usize,
    /// Bytes of the piece that are behind it.
    pub(crate) offset: usize,
}

impl Cursor {
    /// Returns whether nothing of its run is behind it.
    pub(crate) fn begins_run(&self) -> bool {
        self.piece == 0 && self.offset == 0
    }

    /// Moves on by `len` bytes, which the piece still has. `pieces`: those of the run. Whether that ends the run.
    pub(crate) fn advance(&mut self, len: usize, pieces: &[Piece]) -> bool {
        self.offset += len;
        if self.offset < pieces[self.piece].len {
            return false;
        }
        (self.piece, self.offset) = (self.piece + 1, 0);
        let ends = self.piece == pieces.len();
        if ends {
            (self.run, self.piece) = (self.run + 1, 0);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_goes_through_all_bytes_once() {
        let pieces = [3, 1].map(|len| Piece { from: 0, to: 0, len });
        let mut cursor = Cursor::default();
        assert!(cursor.begins_run());
        let mut at = |len: usize| {
            let ends = cursor.advance(len, &pieces);
            (ends, cursor.run, cursor.piece, cursor.offset, cursor.begins_run())
        };
        assert_eq!(at(2), (false, 0, 0, 2, false));
        assert_eq!(at(1), (false, 0, 1, 0, false));
        assert_eq!(at(1), (true, 1, 0, 0, true));
        assert_eq!(at(3), (false, 1, 1, 0, false));
    }
}
