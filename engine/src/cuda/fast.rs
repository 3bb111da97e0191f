//! Products of the set `fast`: those in bf16 of many rows go to NVIDIA's library.

use super::inputs::MICRO_BATCH_ROWS_MAX;
use super::model::CudaModel;
use super::weights::{CudaLinear, Matrix};
use crate::device::DeviceLimits;
use crate::ops::OpsError;
use cuda::kernels::{Finish, WeightForm};
use cuda::{Blas, BlasArgs, BlasError, BlasShape, DeviceBytes, DriverError, Stream};
use half::bf16;
use std::collections::HashMap;

/// Rows up to which our own kernels make a product, which read weights as fast as they can be read.
pub(super) const OWN_ROWS_MAX: usize = 16;

/// Which kernels compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSet {
    /// Our own: the bits of a row do not depend on other rows.
    Exact,
    /// Products in bf16 of more than 16 rows are cublasLt's, whose bits may.
    Fast,
}

/// The library, prepared for a model.
pub(super) struct Fast {
    blas: Blas,
    /// Biases in bf16, by the address of those in f32: the library adds what has the result's format.
    biases: HashMap<u64, DeviceBytes>,
}

/// What a product writes, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The first row's first number.
    pub(super) out: u64,
    /// Numbers from one row to the next.
    pub(super) stride: u32,
    pub(super) finish: Finish,
}

/// Why the library cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(super) enum FastError {
    #[error(transparent)]
    Blas(#[from] BlasError),
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl Fast {
    /// Loads the library, and prepares all products of a model for steps within limits. Errors: [`FastError`].
    pub(super) fn new(model: &CudaModel, limits: &DeviceLimits, stream: &Stream) -> Result<Self, FastError> {
        let mut own = Self { blas: Blas::load(&model.card.context)?, biases: HashMap::new() };
        let head = model.decoder.head().0;
        for (index, linear) in model.weights.linears.iter().enumerate() {
            let is_head = index == head;
            let finish = if is_head { Finish::F32 } else { Finish::Bf16 };
            let rows = if is_head { limits.outputs_max } else { limits.rows_max.min(MICRO_BATCH_ROWS_MAX) };
            for matrix in linear.matrices.iter().filter(|matrix| is_taken(matrix, rows)) {
                own.blas.prepare(shape(linear, matrix, linear.outputs as u32, finish), rows as u32)?;
                if let Some(bias) = matrix.bias.as_ref().filter(|_| !is_head) {
                    own.biases.insert(bias.address(), rounded(bias, stream)?);
                }
            }
        }
        Ok(own)
    }

    /// Returns the library's version.
    pub(super) fn version(&self) -> String {
        self.blas.version()
    }

    /// Queues a matrix's product. Errors: the library refuses it.
    ///
    /// # Safety
    /// `x` must have so many rows of the layer's inputs, and the target room for as many.
    pub(super) unsafe fn launch(
        &self,
        stream: &Stream,
        linear: &CudaLinear,
        matrix: &Matrix,
        (x, rows): (u64, usize),
        target: Target,
    ) -> Result<(), OpsError> {
        let Target { out, stride, finish } = target;
        let shape = shape(linear, matrix, stride, finish);
        let bias = matrix.bias.as_ref().map_or(0, DeviceBytes::address);
        let bias = self.biases.get(&bias).map_or(bias, DeviceBytes::address);
        let args = BlasArgs { shape, out, weights: matrix.weights.address(), x, bias, rows: rows as u32 };
        // SAFETY: as the caller says; a device has one stream for its steps.
        unsafe { self.blas.launch(stream, &args) }.map_err(|error| OpsError(error.to_string()))
    }
}

/// Returns whether the library makes a product.
pub(super) fn is_taken(matrix: &Matrix, rows: usize) -> bool {
    matrix.form == WeightForm::Bf16 && rows > OWN_ROWS_MAX
}

fn shape(linear: &CudaLinear, matrix: &Matrix, stride: u32, finish: Finish) -> BlasShape {
    BlasShape {
        outputs: matrix.outputs as u32,
        inputs: linear.inputs as u32,
        stride,
        is_f32: finish == Finish::F32,
        has_bias: matrix.bias.is_some(),
    }
}

/// Returns numbers of the card in bf16, on the card.
fn rounded(numbers: &DeviceBytes, stream: &Stream) -> Result<DeviceBytes, DriverError> {
    let mut bytes = vec![0_u8; numbers.len()];
    // SAFETY: both have so many bytes.
    unsafe { stream.download(bytes.as_mut_ptr(), numbers.address(), bytes.len()) }?;
    stream.synchronize()?;
    let narrow =
        bytes.as_chunks().0.iter().flat_map(|&number| bf16::from_f32(f32::from_le_bytes(number)).to_le_bytes());
    let narrow: Vec<u8> = narrow.collect();
    let memory = DeviceBytes::new(numbers.context(), narrow.len())?;
    // SAFETY: the memory was just made, with as many bytes.
    unsafe { stream.upload(memory.address(), &narrow) }?;
    stream.synchronize()?;
    Ok(memory)
}
