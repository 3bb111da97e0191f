//! The scale and the cap of logits, in the families that have them.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("logits.cu");

/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks, at most: more numbers are taken in turns.
const BLOCKS_MAX: u64 = 2048;

/// The kernel.
#[derive(Clone, Debug)]
pub struct CapLogits(Function);

/// Operands. `x = x * scale`, then `cap * tanh(x / cap)`.
#[derive(Clone, Copy, Debug)]
pub struct CapLogitsArgs {
    /// Logits in f32, in device memory, read and written.
    pub logits: u64,
    /// How many there are.
    pub count: u64,
    /// Multiplies them.
    pub scale: f32,
    /// The cap; 0: none.
    pub cap: f32,
}

impl CapLogits {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        Ok(Self(loader.module(&SOURCE)?.function("cap_logits")?))
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`CapLogitsArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &CapLogitsArgs) -> Result<(), DriverError> {
        let &CapLogitsArgs { logits, count, scale, cap } = args;
        let words = Args::new().address(logits).address(count).float(scale).float(cap);
        let blocks = count.div_ceil(THREADS.into()).clamp(1, BLOCKS_MAX) as u32;
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.0, Grid { overlaps: true, ..Grid::of(blocks, THREADS) }, words) }
    }
}
