//! Copies of whole records within a pool.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("copy_blocks.cu");

/// Threads of a block.
const THREADS: u32 = 256;
/// Bytes of a record that a block has at once.
const BLOCK_BYTES: u64 = 256 * 4 * 16;

/// The kernel.
#[derive(Clone, Debug)]
pub struct CopyBlocks(Function);

/// Operands; addresses are of device memory.
#[derive(Clone, Copy, Debug)]
pub struct CopyBlocksArgs {
    /// The pool, a record per block.
    pub pool: u64,
    /// Pairs of u32: the block that is read, and another one that is written. They are copied in this order, so that a
    /// block may be in several of them.
    pub copies: u64,
    /// One u32: how many pairs there are.
    pub count: u64,
    /// Bytes of a record, a multiple of 16.
    pub record_bytes: u64,
    /// Blocks of the grid, at most, and above 0: larger records are taken in turns.
    pub grid_max: u32,
}

impl CopyBlocks {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        Ok(Self(loader.module(&SOURCE)?.function("copy_blocks")?))
    }

    /// Queues it. The grid does not depend on the copies. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`CopyBlocksArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &CopyBlocksArgs) -> Result<(), DriverError> {
        let &CopyBlocksArgs { pool, copies, count, record_bytes, grid_max } = args;
        let words = Args::new().address(pool).address(copies).address(count).address(record_bytes);
        let blocks = record_bytes.div_ceil(BLOCK_BYTES).min(grid_max.into()) as u32;
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.0, Grid { overlaps: true, ..Grid::of(blocks, THREADS) }, words) }
    }
}
