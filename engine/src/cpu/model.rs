//! A model's weights in the form the kernels read, shared by all CPU devices of a process.
//!
//! Matrices are packed once, at load: 64 outputs to a panel, input by input (see `kernels::linear`), in their own number
//! format. Norms and biases become f32. The checkpoint is not needed afterwards.

use super::kernels::{HEAD_DIM_MAX, PANEL};
use super::memory::Memory;
use crate::checkpoint::{Checkpoint, TensorView};
use crate::models::bind::LoadError;
use crate::models::decoder::Decoder;
use crate::ops::{Embedding, Linear, LinearPart, Norm, StoreError, WeightStore};
use crate::spec::ModelSpec;
use domain::Dtype;
use half::{bf16, f16};
use std::thread;

/// Weights of a model and how they are used.
pub struct CpuModel {
    pub(super) spec: ModelSpec,
    pub(super) decoder: Decoder,
    pub(super) weights: Weights,
}

/// What the handles of a [`Decoder`] stand for.
#[derive(Default)]
pub(super) struct Weights {
    linears: Vec<PackedLinear>,
    norms: Vec<Vec<f32>>,
    tables: Vec<Table>,
}

/// An embedding table.
pub(super) enum Table {
    /// Row by row, as in the checkpoint.
    Rows {
        /// The rows.
        memory: Memory,
        /// Number format.
        dtype: Dtype,
        /// Numbers per row.
        width: usize,
    },
    /// The rows are the outputs of a packed layer.
    Tied(Linear),
}

/// A linear layer.
pub(super) struct PackedLinear {
    panels: Memory,
    /// Padded to whole panels; empty: none.
    bias: Vec<f32>,
    pub(super) dtype: Dtype,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl CpuModel {
    /// Packs the weights of `checkpoint`. `progress` is called with the share that is done, 0 to 1. Errors: a tensor is
    /// missing or has the wrong shape, the model's shape is beyond what the kernels do, or there is no memory.
    pub fn load(
        spec: ModelSpec,
        checkpoint: &Checkpoint,
        progress: &mut dyn FnMut(f32),
    ) -> Result<CpuModel, LoadError> {
        if spec.head_dim > HEAD_DIM_MAX || !spec.head_dim.is_multiple_of(2) {
            let reason = format!("heads of {} numbers; even sizes up to {HEAD_DIM_MAX} are supported", spec.head_dim);
            return Err(LoadError::Unsupported(reason));
        }
        let mut weights = Weights::default();
        let decoder = Decoder::bind(&spec, checkpoint, &mut weights, progress)?;
        Ok(Self { spec, decoder, weights })
    }

    /// The model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }
}

impl Weights {
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
                Table::Rows { memory, dtype, width } => {
                    widen(memory.as_ptr(), token * width, 1, *dtype, *width, out);
                }
                Table::Tied(linear) => {
                    let linear = self.linear(*linear);
                    let first = token / PANEL * PANEL * linear.inputs + token % PANEL;
                    widen(linear.panels.as_ptr(), first, PANEL, linear.dtype, linear.inputs, out);
                }
            }
        }
    }
}

/// Widens `count` numbers, of which the first is number `first` behind `from` and each is `stride` after the last.
///
/// # Safety
/// They can be read, and `out` can be written.
unsafe fn widen(from: *const u8, first: usize, stride: usize, dtype: Dtype, count: usize, out: *mut f32) {
    for i in 0..count {
        let at = first + i * stride;
        // SAFETY: as the caller says.
        unsafe {
            out.add(i).write(match dtype {
                Dtype::F32 => from.cast::<f32>().add(at).read(),
                Dtype::F16 => from.cast::<f16>().add(at).read().to_f32(),
                Dtype::Bf16 => from.cast::<bf16>().add(at).read().to_f32(),
            });
        }
    }
}

impl PackedLinear {
    /// Packs the outputs of all parts. A layer whose parts differ in their number format is kept in f32.
    fn pack(parts: &[LinearPart<'_>]) -> Result<Self, StoreError> {
        let inputs = parts[0].weight.shape[1];
        let outputs: usize = parts.iter().map(|part| part.weight.shape[0]).sum();
        let first = parts[0].weight.dtype;
        let dtype = if parts.iter().all(|part| part.weight.dtype == first) { first } else { Dtype::F32 };
        let panels = outputs.div_ceil(PANEL);
        let bytes = panels * PANEL * inputs * dtype.bytes();
        let memory = Memory::zeroed(bytes).map_err(|source| StoreError { bytes, source })?;

        // Every thread packs panels of its own: consecutive ones, as many as the others.
        let rows: Vec<Row<'_>> = parts.iter().flat_map(|part| Row::all(&part.weight)).collect();
        let threads = thread::available_parallelism().map_or(1, usize::from).min(panels);
        let base = Address(memory.as_ptr());
        thread::scope(|scope| {
            for (thread, rows) in rows.chunks(panels.div_ceil(threads) * PANEL).enumerate() {
                scope.spawn(move || {
                    let base = base;
                    for (index, rows) in rows.chunks(PANEL).enumerate() {
                        let panel = thread * panels.div_ceil(threads) + index;
                        // SAFETY: the panel is inside the memory, and only this thread writes it.
                        unsafe { pack_panel(rows, dtype, base.0.add(panel * PANEL * inputs * dtype.bytes())) };
                    }
                });
            }
        });

        let mut bias = Vec::new();
        if parts.iter().any(|part| part.bias.is_some()) {
            for part in parts {
                match &part.bias {
                    Some(tensor) => bias.extend(widen_tensor(tensor)),
                    None => bias.resize(bias.len() + part.weight.shape[0], 0.0),
                }
            }
            bias.resize(panels * PANEL, 0.0);
        }
        Ok(Self { panels: memory, bias, dtype, inputs, outputs })
    }

    /// Panels of 64 outputs.
    pub(super) fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// The weights of panel `index`.
    pub(super) fn panel(&self, index: usize) -> *const u8 {
        assert!(index < self.panels());
        // SAFETY: the memory has this many panels.
        unsafe { self.panels.as_ptr().add(index * PANEL * self.inputs * self.dtype.bytes()) }
    }

    /// The biases of panel `index`; null: none.
    pub(super) fn panel_bias(&self, index: usize) -> *const f32 {
        self.bias.get(index * PANEL..).filter(|bias| !bias.is_empty()).map_or(std::ptr::null(), <[f32]>::as_ptr)
    }
}

/// An address that threads may share.
#[derive(Clone, Copy)]
struct Address(*mut u8);

// SAFETY: it is an address; `PackedLinear::pack` says who writes where.
unsafe impl Send for Address {}

/// One output's weights in the checkpoint.
#[derive(Clone, Copy)]
struct Row<'a> {
    bytes: &'a [u8],
    dtype: Dtype,
}

impl<'a> Row<'a> {
    /// The rows of a matrix.
    fn all(weight: &TensorView<'a>) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let dtype = weight.dtype;
        weight.data.chunks_exact(weight.shape[1] * dtype.bytes()).map(move |bytes| Row { bytes, dtype })
    }
}

/// Writes the weights of up to 64 outputs, input by input, as `dtype`: that of the rows, or f32.
///
/// # Safety
/// A panel can be written behind `to`, which nobody else uses.
unsafe fn pack_panel(rows: &[Row<'_>], dtype: Dtype, to: *mut u8) {
    for (output, row) in rows.iter().enumerate() {
        let bytes = dtype.bytes();
        if row.dtype == dtype {
            for (input, number) in row.bytes.chunks_exact(bytes).enumerate() {
                // SAFETY: output and input are inside the panel.
                let to = unsafe { to.add((input * PANEL + output) * bytes) };
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(number.as_ptr(), bytes) };
            }
        } else {
            for (input, number) in numbers(row.bytes, row.dtype).enumerate() {
                // SAFETY: output and input are inside the panel, whose numbers are f32 here.
                unsafe { to.cast::<f32>().add(input * PANEL + output).write(number) };
            }
        }
    }
}

/// Numbers in the bytes of a tensor, widened.
fn numbers(bytes: &[u8], dtype: Dtype) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(dtype.bytes()).map(move |number| match (dtype, number) {
        (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (Dtype::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        (_, number) => f32::from_le_bytes(number.try_into().expect("a chunk is one number")),
    })
}

fn widen_tensor(tensor: &TensorView<'_>) -> Vec<f32> {
    numbers(tensor.data, tensor.dtype).collect()
}

impl WeightStore for Weights {
    fn embedding(&mut self, table: &TensorView<'_>) -> Result<Embedding, StoreError> {
        let bytes = table.data.len();
        let memory = Memory::zeroed(bytes).map_err(|source| StoreError { bytes, source })?;
        // SAFETY: the memory is new and has these many bytes.
        unsafe { memory.as_ptr().copy_from_nonoverlapping(table.data.as_ptr(), bytes) };
        self.tables.push(Table::Rows { memory, dtype: table.dtype, width: table.shape[1] });
        Ok(Embedding(self.tables.len() - 1))
    }

    fn tied_embedding(&mut self, table: &TensorView<'_>) -> Result<(Embedding, Linear), StoreError> {
        let head = self.linear(&[LinearPart { weight: table.clone(), bias: None }])?;
        self.tables.push(Table::Tied(head));
        Ok((Embedding(self.tables.len() - 1), head))
    }

    fn linear(&mut self, parts: &[LinearPart<'_>]) -> Result<Linear, StoreError> {
        self.linears.push(PackedLinear::pack(parts)?);
        Ok(Linear(self.linears.len() - 1))
    }

    fn norm(&mut self, weight: &TensorView<'_>) -> Result<Norm, StoreError> {
        self.norms.push(widen_tensor(weight));
        Ok(Norm(self.norms.len() - 1))
    }
}
