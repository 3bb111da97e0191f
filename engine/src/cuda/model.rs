//! A model's weights in a card's memory.

use super::card::Card;
use super::kernels::{GROUP_MAX, HEAD_DIMS, Kernels};
use super::upload::Uploader;
use crate::checkpoint::{Checkpoint, LET_GO_BYTES, TensorView};
use crate::models::bind::LoadError;
use crate::models::decoder::Decoder;
use crate::ops::{Embedding, Linear, LinearMatrix, Norm, StoreError, WeightStore};
use crate::quant::WeightFormat;
use crate::spec::ModelSpec;
use crate::timed::LinearSize;
use cuda::kernels::AttentionShape;
use cuda::{DeviceBytes, DriverError};
use domain::Dtype;
use half::bf16;
use std::io;
use std::sync::Arc;

/// Numbers that products take at once: rows of weights are a multiple of it.
const INPUTS_STEP: usize = 32;

/// Weights of a model and how they are used.
pub struct CudaModel {
    pub(super) card: Arc<Card>,
    pub(super) kernels: Kernels,
    pub(super) spec: ModelSpec,
    pub(super) decoder: Decoder,
    pub(super) weights: Weights,
    /// The number format that most of the weights have in the checkpoint.
    pub(super) format: WeightFormat,
}

/// What the handles of a [`Decoder`] stand for.
pub(super) struct Weights {
    pub(super) linears: Vec<CudaLinear>,
    pub(super) norms: Vec<CudaNorm>,
    pub(super) tables: Vec<Table>,
}

/// A linear layer: `[outputs][inputs]` of bf16, row-major.
pub(super) struct CudaLinear {
    pub(super) weights: Arc<DeviceBytes>,
    /// In f32.
    pub(super) bias: Option<DeviceBytes>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// Weights of a norm, in f32.
pub(super) struct CudaNorm {
    pub(super) weights: DeviceBytes,
    pub(super) width: usize,
}

/// An embedding table: rows of bf16.
pub(super) struct Table {
    pub(super) rows: Arc<DeviceBytes>,
}

impl CudaModel {
    /// Brings the weights of `checkpoint` to a card. `progress` is called with the share that is done, 0 to 1. Errors:
    /// a tensor is missing or has the wrong shape, the kernels cannot do the model's shape, or there is no memory.
    pub fn load(
        card: Arc<Card>,
        spec: ModelSpec,
        checkpoint: &Checkpoint,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, LoadError> {
        let shape = check_shape(&spec)?;
        let kernels = Kernels::load(&card.loader, shape).map_err(|error| LoadError::Unsupported(error.to_string()))?;
        let uploader = Uploader::new(&card.context).map_err(|source| no_memory(0, source))?;
        let weights = Weights { linears: Vec::new(), norms: Vec::new(), tables: Vec::new() };
        let mut store = Store { card: &card, uploader, weights };
        let decoder = Decoder::bind(&spec, checkpoint, &mut store, progress)?;
        let weights = store.weights;
        let format = checkpoint.format().unwrap_or(WeightFormat::Plain(spec.dtype));
        Ok(Self { card, kernels, spec, decoder, weights, format })
    }

    /// Returns the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Returns the card that it is on.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }

    /// Returns the number format that most of the weights have in the checkpoint.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Returns all linear layers.
    pub fn linears(&self) -> impl Iterator<Item = LinearSize> + '_ {
        self.weights.linears.iter().enumerate().map(|(index, linear)| LinearSize {
            role: self.decoder.role(Linear(index)),
            inputs: linear.inputs,
            outputs: linear.outputs,
            bytes: linear.weights.len(),
        })
    }

    /// Returns the bytes of the card's memory that the weights take.
    pub fn weight_bytes(&self) -> u64 {
        let Weights { linears, norms, tables } = &self.weights;
        let linear = |linear: &CudaLinear| linear.weights.len() + linear.bias.as_ref().map_or(0, DeviceBytes::len);
        // A tied table is a linear layer's weights.
        let alone = tables.iter().filter(|table| Arc::strong_count(&table.rows) == 1).map(|table| table.rows.len());
        let bytes = linears.iter().map(linear).chain(norms.iter().map(|norm| norm.weights.len())).chain(alone);
        bytes.sum::<usize>() as u64
    }
}

/// Returns the shape of a model's attention. Errors: no kernel does the model's shape.
pub(super) fn check_shape(spec: &ModelSpec) -> Result<AttentionShape, LoadError> {
    let refuse = |reason: String| Err(LoadError::Unsupported(reason));
    if !HEAD_DIMS.contains(&spec.head_dim) {
        let dims = HEAD_DIMS.map(|dim| dim.to_string()).join(", ");
        return refuse(format!("heads of {} numbers; the cuda device has kernels for {dims}", spec.head_dim));
    }
    let (heads, kv_heads, dim) = (spec.heads as u32, spec.kv_heads as u32, spec.head_dim as u32);
    let Some(shape) = AttentionShape::new(heads, kv_heads, dim) else {
        return refuse(format!(
            "{heads} query heads and {kv_heads} KV heads; the cuda device has kernels for up to {GROUP_MAX} query heads a KV head"
        ));
    };
    let widths = [("hidden_size", spec.hidden), ("the attention's width", spec.heads * spec.head_dim)];
    let mlp = spec.feed_forward.iter().map(|feed_forward| ("intermediate_size", feed_forward.width()));
    match widths.into_iter().chain(mlp).find(|(_, width)| !width.is_multiple_of(INPUTS_STEP)) {
        Some((what, width)) => refuse(format!("{what} is {width}; the cuda device needs multiples of {INPUTS_STEP}")),
        None => Ok(shape),
    }
}

/// Where a definition's weights go while it is bound.
struct Store<'a> {
    card: &'a Card,
    uploader: Uploader,
    weights: Weights,
}

impl Store<'_> {
    fn allocate(&self, bytes: usize) -> Result<DeviceBytes, StoreError> {
        DeviceBytes::new(&self.card.context, bytes).map_err(|source| no_memory(bytes, source))
    }

    /// Brings matrices to the card, one behind the other, as rows of bf16.
    fn matrices(&mut self, matrices: &[&TensorView<'_>]) -> Result<DeviceBytes, StoreError> {
        let size = |matrix: &&TensorView<'_>| matrix.height() * matrix.width() * size_of::<bf16>();
        let memory = self.allocate(matrices.iter().map(size).sum())?;
        let mut to = memory.address();
        for matrix in matrices {
            let (rows, row_bytes) = (matrix.height(), matrix.width() * size_of::<bf16>());
            let fill = |rows: std::ops::Range<usize>, out: &mut [u8]| write_bf16(matrix, rows, out);
            // SAFETY: the memory was just made and has room for all matrices.
            let sent = unsafe { self.uploader.upload(to, rows, row_bytes, &fill) };
            sent.map_err(|source| no_memory(rows * row_bytes, source))?;
            matrix.let_go(0..rows);
            to += (rows * row_bytes) as u64;
        }
        Ok(memory)
    }

    /// Brings gates and ups to the card, in groups of [`GATES`].
    fn interleaved(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        let views: Vec<&TensorView<'_>> = matrices.iter().map(|matrix| &matrix.weight).collect();
        let (inputs, outputs) = (views[0].width(), views.iter().map(|view| view.height()).sum::<usize>());
        let row_bytes = inputs * size_of::<bf16>();
        let memory = self.allocate(outputs * row_bytes)?;
        let fill = |rows: std::ops::Range<usize>, out: &mut [u8]| {
            let first = rows.start;
            // Rows of a group are one behind the other in the checkpoint.
            let mut row = rows.start;
            while row < rows.end {
                let end = ((row / GATES + 1) * GATES).min(rows.end);
                let mut from = interleaved_row(row, outputs / 2);
                let mut view = views[0];
                if from >= view.height() {
                    (from, view) = (from - view.height(), views[1]);
                }
                let out = &mut out[(row - first) * row_bytes..(end - first) * row_bytes];
                write_bf16(view, from..from + (end - row), out);
                row = end;
            }
        };
        // SAFETY: the memory was just made and has room for all rows.
        let sent = unsafe { self.uploader.upload(memory.address(), outputs, row_bytes, &fill) };
        sent.map_err(|source| no_memory(outputs * row_bytes, source))?;
        views.iter().for_each(|view| view.let_go(0..view.height()));
        let bias =
            self.bias(matrices, |bias| (0..outputs).map(|row| bias[interleaved_row(row, outputs / 2)]).collect())?;
        self.weights.linears.push(CudaLinear { weights: Arc::new(memory), bias, inputs, outputs });
        Ok(Linear(self.weights.linears.len() - 1))
    }

    /// Brings the biases of matrices to the card, if one has any, in an order of the caller's choice.
    fn bias(
        &mut self,
        matrices: &[LinearMatrix<'_>],
        order: impl FnOnce(Vec<f32>) -> Vec<f32>,
    ) -> Result<Option<DeviceBytes>, StoreError> {
        if matrices.iter().all(|matrix| matrix.bias.is_none()) {
            return Ok(None);
        }
        let bias = |matrix: &LinearMatrix<'_>| match &matrix.bias {
            Some(bias) => bias.widened(0..bias.height()),
            None => vec![0.0; matrix.weight.height()],
        };
        let numbers = order(matrices.iter().flat_map(bias).collect());
        self.numbers(&numbers).map(Some)
    }

    /// Brings numbers to the card.
    fn numbers(&mut self, numbers: &[f32]) -> Result<DeviceBytes, StoreError> {
        let memory = self.allocate(size_of_val(numbers))?;
        let fill = |range: std::ops::Range<usize>, out: &mut [u8]| {
            let own = numbers[range].iter().flat_map(|number| number.to_le_bytes());
            out.iter_mut().zip(own).for_each(|(to, byte)| *to = byte);
        };
        // SAFETY: the memory was just made and has room for them.
        let sent = unsafe { self.uploader.upload(memory.address(), numbers.len(), size_of::<f32>(), &fill) };
        sent.map_err(|source| no_memory(size_of_val(numbers), source))?;
        Ok(memory)
    }
}

/// Gates, and ups, that lie one behind the other: then their kernel multiplies them as it writes them.
const GATES: usize = 8;

/// Returns which row of gates and ups, which lie one behind the other in the checkpoint, is row `row` on the card.
fn interleaved_row(row: usize, width: usize) -> usize {
    let (group, within) = (row / (2 * GATES), row % (2 * GATES));
    group * GATES + within % GATES + if within < GATES { 0 } else { width }
}

/// Writes rows as bf16: as they are, or rounded once.
fn write_bf16(matrix: &TensorView<'_>, rows: std::ops::Range<usize>, out: &mut [u8]) {
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
        let rows = Arc::new(self.matrices(&[table])?);
        self.weights.tables.push(Table { rows });
        Ok(Embedding(self.weights.tables.len() - 1))
    }

    fn tied_embedding(&mut self, table: &TensorView<'_>) -> Result<(Embedding, Linear), StoreError> {
        let embedding = self.embedding(table)?;
        let weights = self.weights.tables[embedding.0].rows.clone();
        let (outputs, inputs) = (table.height(), table.width());
        self.weights.linears.push(CudaLinear { weights, bias: None, inputs, outputs });
        Ok((embedding, Linear(self.weights.linears.len() - 1)))
    }

    fn linear(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        let views: Vec<&TensorView<'_>> = matrices.iter().map(|matrix| &matrix.weight).collect();
        let weights = Arc::new(self.matrices(&views)?);
        let inputs = views[0].width();
        let outputs = views.iter().map(|view| view.height()).sum();
        let bias = self.bias(matrices, |bias| bias)?;
        self.weights.linears.push(CudaLinear { weights, bias, inputs, outputs });
        Ok(Linear(self.weights.linears.len() - 1))
    }

    fn gate_up(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        self.interleaved(matrices)
    }

    fn norm(&mut self, weight: &TensorView<'_>, offset: f32) -> Result<Norm, StoreError> {
        let numbers: Vec<f32> = weight.widened(0..weight.height()).iter().map(|number| number + offset).collect();
        let (weights, width) = (self.numbers(&numbers)?, numbers.len());
        self.weights.norms.push(CudaNorm { weights, width });
        Ok(Norm(self.weights.norms.len() - 1))
    }
}
