//! How a model's weights come to a card: matrices of one form are fused, packed on their way, and sent in slices.

use super::card::Card;
use super::upload::Uploader;
use super::weights::{CudaLinear, CudaNorm, Matrix, Table, Weights, form_of};
use crate::checkpoint::{LET_GO_BYTES, TensorView};
use crate::ops::{Embedding, Linear, LinearMatrix, Norm, StoreError, WeightStore};
use crate::quant::WeightFormat;
use cuda::kernels::WeightForm;
use cuda::{DeviceBytes, DriverError};
use domain::Dtype;
use half::bf16;
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Gates, and ups, that lie one behind the other: then their kernel multiplies them as it writes them.
const GATES: usize = 8;

/// Where a definition's weights go while it is bound.
pub(super) struct Store<'a> {
    card: &'a Card,
    uploader: Uploader,
    pub(super) weights: Weights,
}

/// Rows of weights in one form, as they lie on the card.
struct Rows<'a> {
    views: Vec<&'a TensorView<'a>>,
    form: WeightForm,
    /// Gates and ups are in turns, [`GATES`] of each.
    is_interleaved: bool,
}

impl Rows<'_> {
    fn inputs(&self) -> usize {
        self.views[0].width()
    }

    fn outputs(&self) -> usize {
        self.views.iter().map(|view| view.height()).sum()
    }

    /// Returns which row, of all views one behind the other, is row `row` on the card.
    fn source(&self, row: usize) -> usize {
        if self.is_interleaved { interleaved_row(row, self.outputs() / 2) } else { row }
    }

    /// Calls `each` with the runs of rows that are `rows` on the card, in their order.
    fn runs<'b>(&'b self, rows: Range<usize>, mut each: impl FnMut(&'b TensorView<'b>, Range<usize>)) {
        let mut row = rows.start;
        while row < rows.end {
            let limit = if self.is_interleaved { ((row / GATES + 1) * GATES).min(rows.end) } else { rows.end };
            let mut from = self.source(row);
            let view = self.views.iter().find(|view| {
                let is_here = from < view.height();
                from -= if is_here { 0 } else { view.height() };
                is_here
            });
            let view = view.expect("the views have all rows");
            let count = (limit - row).min(view.height() - from);
            each(view, from..from + count);
            row += count;
        }
    }

    /// Writes rows as they are on the card. Rows of packed forms begin at a multiple of what is packed together.
    fn write(&self, rows: Range<usize>, out: &mut [u8]) {
        if self.form != WeightForm::Bf16 {
            let mut blocks = Vec::with_capacity(rows.len());
            self.runs(rows, |view, own| match view.format {
                WeightFormat::Repacked(format) => {
                    blocks.extend(view.rows(own).iter().map(|row| Cow::Owned(format.repack(row))));
                }
                _ => blocks.extend(view.rows(own)),
            });
            return self.form.pack(&blocks, self.inputs(), out);
        }
        let mut rest = out;
        self.runs(rows, |view, own| {
            let bytes = own.len() * view.width() * size_of::<bf16>();
            let (now, later) = std::mem::take(&mut rest).split_at_mut(bytes);
            write_bf16(view, own, now);
            rest = later;
        });
    }
}

impl<'a> Store<'a> {
    /// Makes an empty one. Errors: the host has no pinned memory for slices.
    pub(super) fn new(card: &'a Card) -> Result<Self, StoreError> {
        let uploader = Uploader::new(&card.context).map_err(|source| no_memory(0, source))?;
        Ok(Self { card, uploader, weights: Weights::default() })
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceBytes, StoreError> {
        DeviceBytes::new(&self.card.context, bytes).map_err(|source| no_memory(bytes, source))
    }

    /// Brings rows to the card.
    fn upload(&mut self, rows: &Rows<'_>) -> Result<DeviceBytes, StoreError> {
        let (form, inputs, outputs, together) = (rows.form, rows.inputs(), rows.outputs(), rows.form.rows_together());
        let bytes = form.packed_bytes(outputs, inputs);
        let memory = self.allocate(bytes)?;
        let fill = |pieces: Range<usize>, out: &mut [u8]| {
            rows.write(pieces.start * together..(pieces.end * together).min(outputs), out);
        };
        let (pieces, piece_bytes) = (outputs.div_ceil(together), form.packed_bytes(together, inputs));
        // SAFETY: the memory was just made and has room for all rows.
        let sent = unsafe { self.uploader.upload(memory.address(), pieces, piece_bytes, &fill) };
        sent.map_err(|source| no_memory(bytes, source))?;
        for view in &rows.views {
            view.let_go(0..view.height());
            let own = form.packed_bytes(view.height(), inputs);
            self.weights.shares.add_matrix(view.format, form, own);
        }
        Ok(memory)
    }

    /// Adds a layer of matrices. Those that follow one another in one form are one product.
    fn add_linear(&mut self, matrices: &[LinearMatrix<'_>], is_interleaved: bool) -> Result<Linear, StoreError> {
        let form = |matrix: &LinearMatrix<'_>| form_of(matrix.weight.format);
        let mut own = Vec::new();
        for fused in matrices.chunk_by(|one, next| form(one) == form(next)) {
            // Gates and ups of two forms are two products.
            let is_interleaved = is_interleaved && fused.len() == matrices.len();
            let views = fused.iter().map(|matrix| &matrix.weight).collect();
            let rows = Rows { views, form: form(&fused[0]), is_interleaved };
            let weights = Arc::new(self.upload(&rows)?);
            let bias = self.bias(fused, &rows)?;
            own.push(Matrix { form: rows.form, weights, bias, outputs: rows.outputs() });
        }
        let (inputs, outputs) = (matrices[0].weight.width(), own.iter().map(|matrix| matrix.outputs).sum());
        self.weights.linears.push(CudaLinear { matrices: own, inputs, outputs });
        Ok(Linear(self.weights.linears.len() - 1))
    }

    /// Brings the biases of matrices to the card, if one has any, in the order of their rows.
    fn bias(&mut self, matrices: &[LinearMatrix<'_>], rows: &Rows<'_>) -> Result<Option<DeviceBytes>, StoreError> {
        if matrices.iter().all(|matrix| matrix.bias.is_none()) {
            return Ok(None);
        }
        let bias = |matrix: &LinearMatrix<'_>| match &matrix.bias {
            Some(bias) => bias.widened(0..bias.height()),
            None => vec![0.0; matrix.weight.height()],
        };
        let stored: Vec<f32> = matrices.iter().flat_map(bias).collect();
        let numbers: Vec<f32> = (0..stored.len()).map(|row| stored[rows.source(row)]).collect();
        self.numbers(&numbers).map(Some)
    }

    /// Brings numbers to the card.
    fn numbers(&mut self, numbers: &[f32]) -> Result<DeviceBytes, StoreError> {
        let memory = self.allocate(size_of_val(numbers))?;
        let fill = |range: Range<usize>, out: &mut [u8]| {
            let own = numbers[range].iter().flat_map(|number| number.to_le_bytes());
            out.iter_mut().zip(own).for_each(|(to, byte)| *to = byte);
        };
        // SAFETY: the memory was just made and has room for them.
        let sent = unsafe { self.uploader.upload(memory.address(), numbers.len(), size_of::<f32>(), &fill) };
        sent.map_err(|source| no_memory(size_of_val(numbers), source))?;
        self.weights.shares.add_numbers(memory.len());
        Ok(memory)
    }
}

/// Returns which row of gates and ups, which lie one behind the other in the checkpoint, is row `row` on the card.
fn interleaved_row(row: usize, width: usize) -> usize {
    let (group, within) = (row / (2 * GATES), row % (2 * GATES));
    group * GATES + within % GATES + if within < GATES { 0 } else { width }
}

/// Writes rows as bf16: as they are, or rounded once.
fn write_bf16(matrix: &TensorView<'_>, rows: Range<usize>, out: &mut [u8]) {
    let row_bytes = matrix.width() * size_of::<bf16>();
    let run = (LET_GO_BYTES / row_bytes.max(1)).max(1);
    for (first, out) in rows.clone().step_by(run).zip(out.chunks_mut(run * row_bytes)) {
        let own = first..rows.end.min(first + run);
        if matrix.format == WeightFormat::Plain(Dtype::Bf16) {
            for (row, out) in matrix.rows(own).iter().zip(out.chunks_exact_mut(row_bytes)) {
                out.copy_from_slice(row);
            }
        } else {
            for (number, out) in matrix.widened(own).iter().zip(out.as_chunks_mut().0) {
                *out = bf16::from_f32(*number).to_le_bytes();
            }
        }
    }
}

/// Makes the error of a card that refused memory, or that a copy to failed.
fn no_memory(bytes: usize, source: DriverError) -> StoreError {
    StoreError { bytes, source: io::Error::other(source) }
}

impl WeightStore for Store<'_> {
    fn embedding(&mut self, table: &TensorView<'_>) -> Result<Embedding, StoreError> {
        let form = form_of(table.format);
        let rows = self.upload(&Rows { views: vec![table], form, is_interleaved: false })?;
        self.weights.tables.push(Table { form, rows: Arc::new(rows) });
        Ok(Embedding(self.weights.tables.len() - 1))
    }

    fn tied_embedding(&mut self, table: &TensorView<'_>) -> Result<(Embedding, Linear), StoreError> {
        let embedding = self.embedding(table)?;
        let Table { form, rows } = &self.weights.tables[embedding.0];
        let (outputs, inputs) = (table.height(), table.width());
        let matrix = Matrix { form: *form, weights: rows.clone(), bias: None, outputs };
        self.weights.linears.push(CudaLinear { matrices: vec![matrix], inputs, outputs });
        Ok((embedding, Linear(self.weights.linears.len() - 1)))
    }

    fn linear(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        self.add_linear(matrices, false)
    }

    fn gate_up(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        self.add_linear(matrices, true)
    }

    fn norm(&mut self, weight: &TensorView<'_>, offset: f32) -> Result<Norm, StoreError> {
        let numbers: Vec<f32> = weight.widened(0..weight.height()).iter().map(|number| number + offset).collect();
        let (weights, width) = (self.numbers(&numbers)?, numbers.len());
        self.weights.norms.push(CudaNorm { weights, width });
        Ok(Norm(self.weights.norms.len() - 1))
    }
}
