//! A tensor of a checkpoint, in place.

use super::files::let_go;
use crate::quant::WeightFormat;
use memmap2::Mmap;
use std::ops::Range;

/// Bytes of a tensor that are read before they are let go: much more than what a system maps around a page (64 KiB).
pub(crate) const LET_GO_BYTES: usize = 1 << 20;

/// A tensor of a checkpoint, in place.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Number format.
    pub format: WeightFormat,
    /// Slowest dimension first: a linear layer's weight is `[outputs, inputs]`. Rows are whole blocks of the
    /// number format.
    pub shape: Vec<usize>,
    /// The file, and which bytes of it: row-major, without gaps.
    pub(super) map: &'a Mmap,
    pub(super) range: Range<usize>,
    pub(super) order: RowOrder,
}

impl<'a> TensorView<'a> {
    /// Returns the rows, in order: the numbers of the last dimension, or single ones where there is no other; the one
    /// number of a tensor without dimensions. Little endian, not necessarily aligned to the number format.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let (map, order) = (self.map, self.order);
        let (rows, bytes) = self.rows_of_bytes();
        let data = &map[self.range.clone()];
        (0..rows).map(move |row| {
            let stored = order.stored(row);
            &data[stored * bytes..(stored + 1) * bytes]
        })
    }

    /// Says that rows have been read: their part of the map takes no memory of this process any more. Who reads
    /// them again gets them from the file. Systems map what lies around a page that is read, so pieces of
    /// [`LET_GO_BYTES`] leave less behind than small ones, and all rows at once leave nothing.
    pub fn let_go(&self, rows: Range<usize>) {
        // Rows of another order stay within their head: what is let go here is about what was read.
        let (_, bytes) = self.rows_of_bytes();
        let_go(self.map, self.range.start + rows.start * bytes..self.range.start + rows.end * bytes);
    }

    /// Returns whether its bytes are there: of a file of which only the first bytes have come, they are not.
    pub fn is_here(&self) -> bool {
        self.range.end <= self.map.len()
    }

    /// Numbers of a row.
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Returns how many rows, and the bytes of each.
    fn rows_of_bytes(&self) -> (usize, usize) {
        let rows = self.shape.first().copied().unwrap_or(1);
        (rows, self.range.len().checked_div(rows).unwrap_or(0))
    }
}

/// In which order a file has the rows of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// In order.
    AsStored,
    /// In each head, row `i` of the second half follows row `i` of the first half.
    Interleaved {
        /// Rows of a head, even.
        head_dim: usize,
    },
}

impl RowOrder {
    /// Returns where row `row` is.
    fn stored(self, row: usize) -> usize {
        match self {
            Self::AsStored => row,
            Self::Interleaved { head_dim } => {
                let (head, half) = (row / head_dim * head_dim, head_dim / 2);
                head + row % head_dim % half * 2 + row % head_dim / half
            }
        }
    }
}
