//! RMS norm of rows, after adding to the residual stream.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("norm.cu");

/// Threads of a block, which norms one row.
const THREADS: u32 = 256;

/// The kernel.
#[derive(Clone, Debug)]
pub struct Norm(Function);

/// Operands, all in device memory. `residual += add * residual_scale`, rounded to bf16, then
/// `out = residual * weight / sqrt(mean(residual^2) + eps)`.
#[derive(Clone, Copy, Debug)]
pub struct NormArgs {
    /// Rows of bf16, `[rows][width]`, read and written.
    pub residual: u64,
    /// Rows of bf16 that are added first; 0: none.
    pub add: u64,
    /// Weights in f32, `[width]`; 0: `out` is the residual stream.
    pub weight: u64,
    /// Rows of bf16; may be `residual` or `add`.
    pub out: u64,
    /// One word per row, which becomes 1 where a number is infinite or none; the kernel leaves the others alone.
    pub broken: u64,
    /// Which row of `residual` and `add` each row of `out` is made of, u32, `[rows]`; then the residual stream stays as
    /// it is. 0: each of its own.
    pub from: u64,
    /// Rows of `out`.
    pub rows: u32,
    /// Numbers of a row, a multiple of 8.
    pub width: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Multiplies what is added.
    pub residual_scale: f32,
}

impl Norm {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        Ok(Self(loader.module(&SOURCE)?.function("add_norm")?))
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`NormArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &NormArgs) -> Result<(), DriverError> {
        let &NormArgs { residual, add, weight, out, broken, from, rows, width, eps, residual_scale } = args;
        let words = Args::new().address(residual).address(add).address(weight).address(out).address(broken);
        let words = words.address(from).number(width).float(eps).float(residual_scale);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.0, Grid { overlaps: true, ..Grid::of(rows, THREADS) }, words) }
    }
}
