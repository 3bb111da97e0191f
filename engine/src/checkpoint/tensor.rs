//! A tensor of a checkpoint: rows that lie in a file, or rows that are made of what lies there.

use super::files::let_go;
use super::quantised::QuantisedMatrix;
use crate::quant::{Q8_0, Q8_0_ERROR_MAX, WeightFormat};
use memmap2::Mmap;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a tensor that are read before they are let go: much more than what a system maps around a page (64 KiB).
pub(crate) const LET_GO_BYTES: usize = 1 << 20;

/// A tensor of a checkpoint. Nothing of it is in memory but what is asked for.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Number format of the rows that [`TensorView::rows`] gives.
    pub format: WeightFormat,
    /// Slowest dimension first: a linear layer's weight is `[outputs, inputs]`. Rows are whole blocks of the
    /// number format.
    pub shape: Vec<usize>,
    pub(super) source: Source<'a>,
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub(super) enum Source<'a> {
    /// They lie in a file.
    Stored {
        /// The file.
        map: &'a Mmap,
        /// Which bytes of it: row-major, without gaps.
        range: Range<usize>,
        /// In which order it has the rows.
        order: RowOrder,
    },
    /// They are made of integers, scales and zero points.
    Quantised {
        /// What they are made of.
        matrix: Arc<QuantisedMatrix<'a>>,
        /// What people call its number format.
        format: String,
    },
}

impl<'a> TensorView<'a> {
    /// Returns some rows, in order. A row has the numbers of the last dimension, or a single one where there is no
    /// other; a tensor without dimensions is one row. Bytes are little endian, not necessarily aligned to the number
    /// format. Many rows at once are faster than one by one, where they have to be made.
    pub fn rows(&self, rows: Range<usize>) -> Vec<Cow<'a, [u8]>> {
        match &self.source {
            Source::Stored { map, range, order } => {
                let (bytes, data) = (self.row_bytes(), &map[range.clone()]);
                let row = |row| {
                    let stored = order.stored(row);
                    Cow::Borrowed(&data[stored * bytes..(stored + 1) * bytes])
                };
                rows.map(row).collect()
            }
            Source::Quantised { matrix, .. } => matrix.rows(rows).into_iter().map(Cow::Owned).collect(),
        }
    }

    /// Returns the numbers of some rows as the file means them: each rounded once at most.
    pub fn widened(&self, rows: Range<usize>) -> Vec<f32> {
        if let Source::Quantised { matrix, .. } = &self.source {
            return matrix.widened(rows);
        }
        let mut numbers = vec![0.0; rows.len() * self.width()];
        for (row, out) in self.rows(rows).iter().zip(numbers.chunks_exact_mut(self.width().max(1))) {
            self.format.dequantise(row, out);
        }
        numbers
    }

    /// Says that rows have been read: their part of the map takes no memory of this process any more. Who reads
    /// them again gets them from the file. Systems map what lies around a page that is read, so pieces of
    /// [`LET_GO_BYTES`] leave less behind than small ones, and all rows at once leave nothing.
    pub fn let_go(&self, rows: Range<usize>) {
        match &self.source {
            // Rows of another order stay within their head: what is let go here is about what was read.
            Source::Stored { map, range, .. } => {
                let bytes = self.row_bytes();
                let_go(map, range.start + rows.start * bytes..range.start + rows.end * bytes);
            }
            Source::Quantised { matrix, .. } => matrix.let_go(rows),
        }
    }

    /// Returns how many rows there are.
    pub fn height(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Returns whether its bytes are there: of a file of which only the first bytes have come, they are not.
    pub fn is_here(&self) -> bool {
        match &self.source {
            Source::Stored { map, range, .. } => range.end <= map.len(),
            Source::Quantised { .. } => true,
        }
    }

    /// Returns whether a row can be read without the others: of a matrix whose rows lie side by side, it cannot.
    pub(crate) fn is_by_rows(&self) -> bool {
        match &self.source {
            Source::Stored { .. } => true,
            Source::Quantised { matrix, .. } => matrix.is_by_rows(),
        }
    }

    /// Returns the bytes that it takes in the file.
    pub(crate) fn stored_bytes(&self) -> usize {
        match &self.source {
            Source::Stored { range, .. } => range.len(),
            Source::Quantised { matrix, .. } => matrix.stored_bytes(),
        }
    }

    /// Returns what people call its number format, and the largest change of a number, if it is kept as Q8_0 by
    /// widening it and quantising again. The change is a share of the largest magnitude of the number's 32.
    pub(crate) fn repacked(&self) -> Option<(String, f32)> {
        match (&self.source, self.format) {
            (Source::Stored { .. }, WeightFormat::Repacked(format)) => Some((format.to_string(), format.error_max())),
            (Source::Quantised { matrix, format }, _) if matrix.is_widened() => Some((format.clone(), Q8_0_ERROR_MAX)),
            _ => None,
        }
    }

    /// Returns the largest change of a number in a row of a tensor that is kept so, as a share of the largest of its
    /// 32.
    pub(crate) fn repacking_error(&self, row: usize) -> f32 {
        let rows = self.rows(row..row + 1);
        let packed = match self.format {
            WeightFormat::Repacked(format) => Cow::Owned(format.repack(&rows[0])),
            _ => Cow::Borrowed(&rows[0][..]),
        };
        Q8_0::error_of(&self.widened(row..row + 1), &packed)
    }

    /// Numbers of a row.
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Returns the bytes of a row as [`TensorView::rows`] gives it.
    pub fn row_bytes(&self) -> usize {
        match &self.source {
            Source::Stored { range, .. } => range.len().checked_div(self.height()).unwrap_or(0),
            Source::Quantised { .. } => self.format.bytes(self.width()).expect("rows of whole blocks"),
        }
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
