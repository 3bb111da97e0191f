//! Activated gates times ups.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("gated.cu");

/// Threads of a block.
const THREADS: u32 = 256;
/// Numbers that a thread makes.
const STEP: u32 = 8;

/// The kernel.
#[derive(Clone, Debug)]
pub struct Gated(Function);

/// The activation of a gate. The numbers are those of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu = 0,
    /// GELU by its approximation with a hyperbolic tangent.
    GeluTanh = 1,
}

/// How gates and ups lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GateOrder {
    /// All gates, then all ups.
    Halves = 0,
    /// 8 gates, their 8 ups, the next 8 gates.
    Groups = 1,
}

/// Operands; addresses are of device memory. `out = activation(gate) * up`, rounded to bf16.
#[derive(Clone, Copy, Debug)]
pub struct GatedArgs {
    /// Rows of bf16, `[rows][2 * width]`.
    pub gates_ups: u64,
    /// Rows of bf16, `[rows][width]`.
    pub out: u64,
    /// One word per row, which becomes 1 where a result is infinite or none.
    pub broken: u64,
    /// Rows.
    pub rows: u32,
    /// Gates of a row, a multiple of 8.
    pub width: u32,
    /// The activation.
    pub activation: Activation,
    /// How gates and ups lie in a row.
    pub order: GateOrder,
}

impl Gated {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        Ok(Self(loader.module(&SOURCE)?.function("gated")?))
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`GatedArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &GatedArgs) -> Result<(), DriverError> {
        let &GatedArgs { gates_ups, out, broken, rows, width, activation, order } = args;
        let words = Args::new().address(gates_ups).address(out).address(broken);
        let words = words.number(rows).number(width).number(activation as u32).number(order as u32);
        let blocks = (rows * (width / STEP)).div_ceil(THREADS);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.0, Grid { overlaps: true, ..Grid::of(blocks, THREADS) }, words) }
    }
}
