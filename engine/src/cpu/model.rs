//! A model's weights in the form the kernels read, shared by all CPU devices of a process.
//!
//! Matrices are packed once, at load (see `packed`), in their own number format. Norms and biases become f32. The
//! checkpoint is not needed afterwards.

use super::cpu_topology::Host;
use super::kernels::HEAD_DIM_MAX;
use super::memory::{Memory, Slabs};
use super::numa;
use super::packed::PackedLinear;
use crate::checkpoint::{Checkpoint, LET_GO_BYTES, TensorView};
use crate::models::bind::LoadError;
use crate::models::decoder::Decoder;
use crate::ops::{Embedding, Linear, LinearMatrix, Norm, StoreError, WeightStore};
use crate::quant::WeightFormat;
use crate::spec::ModelSpec;
use crate::timed::LinearSize;
use std::slice;

/// Weights of a model and how they are used.
pub struct CpuModel {
    pub(super) spec: ModelSpec,
    pub(super) decoder: Decoder,
    pub(super) weights: Weights,
    /// The number format that most of the weights have in the checkpoint.
    pub(super) format: WeightFormat,
}

/// What the handles of a [`Decoder`] stand for.
pub(super) struct Weights {
    host: Host,
    linears: Vec<PackedLinear>,
    norms: Vec<Vec<f32>>,
    tables: Vec<Table>,
    slabs: Slabs,
}

/// An embedding table.
pub(super) enum Table {
    /// Row by row, as in the checkpoint.
    Rows {
        /// The rows.
        memory: Memory,
        /// Number format.
        format: WeightFormat,
        /// Numbers per row.
        width: usize,
        /// Bytes per row.
        row_bytes: usize,
    },
    /// The rows are the outputs of a packed layer.
    Tied(Linear),
}

impl CpuModel {
    /// Packs the weights of `checkpoint`. `progress` is called with the share that is done, 0 to 1. Errors: a tensor is
    /// missing or has the wrong shape, the model's shape is beyond what the kernels do, or there is no memory.
    pub fn load(
        spec: ModelSpec,
        checkpoint: &Checkpoint,
        progress: &mut dyn FnMut(f32),
    ) -> Result<CpuModel, LoadError> {
        check_head_dim(&spec)?;
        let mut weights = Weights::on(numa::host());
        let decoder = Decoder::bind(&spec, checkpoint, &mut weights, progress)?;
        let format = checkpoint.format().unwrap_or(WeightFormat::Plain(spec.dtype));
        Ok(Self { spec, decoder, weights, format })
    }

    /// The number format that most of the weights have in the checkpoint.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Returns all linear layers.
    pub fn linears(&self) -> impl Iterator<Item = LinearSize> + '_ {
        self.weights.linears.iter().enumerate().map(|(index, linear)| LinearSize {
            role: self.decoder.role(Linear(index)),
            inputs: linear.inputs,
            outputs: linear.outputs(),
            bytes: linear.bytes(),
        })
    }

    /// Returns the bytes of memory that the weights take.
    pub fn weight_bytes(&self) -> u64 {
        let weights = &self.weights;
        let norms: usize = weights.norms.iter().map(|norm| size_of_val(&norm[..])).sum();
        let biases: usize = weights.linears.iter().map(PackedLinear::bias_bytes).sum();
        (weights.slabs.taken() + norms + biases) as u64
    }

    /// Returns the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }
}

/// Refuses heads that no kernel has.
pub(super) fn check_head_dim(spec: &ModelSpec) -> Result<(), LoadError> {
    if spec.head_dim <= HEAD_DIM_MAX && spec.head_dim.is_multiple_of(2) {
        return Ok(());
    }
    let reason = format!("heads of {} numbers; even sizes up to {HEAD_DIM_MAX} are supported", spec.head_dim);
    Err(LoadError::Unsupported(reason))
}

impl Weights {
    /// None yet, in the memory of this host.
    fn on(host: Host) -> Self {
        Self { host, linears: Vec::new(), norms: Vec::new(), tables: Vec::new(), slabs: Slabs::default() }
    }

    /// Bytes that a row of activations takes, at most, when it is prepared for a layer.
    pub(super) fn prepared_bytes_max(&self) -> usize {
        self.linears.iter().map(PackedLinear::prepared_bytes).max().unwrap_or(0)
    }

    pub(super) fn linear(&self, handle: Linear) -> &PackedLinear {
        &self.linears[handle.0]
    }

    pub(super) fn norm(&self, handle: Norm) -> &[f32] {
        &self.norms[handle.0]
    }

    /// Row `token` of the table, widened into `out`.
    ///
    /// # Safety
    /// The token is in the vocabulary; a row of numbers can be written behind `out`, and nobody else uses it.
    pub(super) unsafe fn embed(&self, handle: Embedding, token: usize, out: *mut f32) {
        // SAFETY: as the caller says: the row is in the table.
        unsafe {
            match &self.tables[handle.0] {
                Table::Rows { memory, format, width, row_bytes } => {
                    let row = slice::from_raw_parts(memory.as_ptr().add(token * row_bytes), *row_bytes);
                    format.dequantise(row, slice::from_raw_parts_mut(out, *width));
                }
                Table::Tied(linear) => self.linear(*linear).widen(token, out),
            }
        }
    }
}

impl WeightStore for Weights {
    fn embedding(&mut self, table: &TensorView<'_>) -> Result<Embedding, StoreError> {
        let (rows, row_bytes) = (table.height(), table.row_bytes());
        let bytes = rows * row_bytes;
        let memory = self.slabs.part(bytes).map_err(|source| StoreError { bytes, source })?;
        let run = (LET_GO_BYTES / row_bytes).max(1);
        for start in (0..rows).step_by(run) {
            let run = start..rows.min(start + run);
            for (index, row) in run.clone().zip(table.rows(run.clone())) {
                // SAFETY: the memory is new and has room for all rows, which are equally long.
                unsafe { memory.as_ptr().add(index * row_bytes).copy_from_nonoverlapping(row.as_ptr(), row.len()) };
            }
            table.let_go(run);
        }
        table.let_go(0..rows);
        let width = table.width();
        self.tables.push(Table::Rows { memory, format: table.format, width, row_bytes });
        Ok(Embedding(self.tables.len() - 1))
    }

    fn tied_embedding(&mut self, table: &TensorView<'_>) -> Result<(Embedding, Linear), StoreError> {
        let head = self.linear(&[LinearMatrix { weight: table.clone(), bias: None }])?;
        self.tables.push(Table::Tied(head));
        Ok((Embedding(self.tables.len() - 1), head))
    }

    fn linear(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        self.linears.push(PackedLinear::pack(matrices, &mut self.slabs, &self.host)?);
        Ok(Linear(self.linears.len() - 1))
    }

    fn norm(&mut self, weight: &TensorView<'_>, offset: f32) -> Result<Norm, StoreError> {
        self.norms.push(weight.widened(0..weight.height()).into_iter().map(|number| number + offset).collect());
        Ok(Norm(self.norms.len() - 1))
    }
}
