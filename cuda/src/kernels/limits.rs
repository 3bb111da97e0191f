//! What a card does at best, for measurements: reads of memory, products on the tensor cores, and launches.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("limits.cu");

/// Threads of a block that reads or multiplies.
const THREADS: u32 = 256;
/// Threads of a block that counts.
const COUNTING: u32 = 32;
/// Sums that a warp works on in turn.
const SUMS: u64 = 8;
/// Threads of a warp.
const WARP: u64 = 32;
/// Multiplications and additions of one instruction: of 16 x 16 and 16 x 8 numbers.
const OPERATIONS: u64 = 2 * 16 * 16 * 8;

/// The kernels.
#[derive(Clone, Debug)]
pub struct LimitKernels {
    read: Function,
    multiply: Function,
    count: Function,
}

/// Pieces of memory; addresses are of device memory.
#[derive(Clone, Copy, Debug)]
pub struct PiecesArgs {
    /// The first byte, at a multiple of 16.
    pub from: u64,
    /// How many pieces there are.
    pub pieces: u64,
    /// Bytes of a piece, a multiple of 16.
    pub piece_bytes: u64,
    /// Bytes from the first byte of a piece to that of the next one, a multiple of 16.
    pub stride: u64,
    /// One u32, to which the sum of all words is added without carry.
    pub total: u64,
    /// Blocks of the grid, above 0.
    pub blocks: u32,
}

impl LimitKernels {
    /// Loads them. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        let module = loader.module(&SOURCE)?;
        let (read, multiply) = (module.function("read_pieces")?, module.function("multiply")?);
        Ok(Self { read, multiply, count: module.function("count_up")? })
    }

    /// Queues reads of pieces, each byte once. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`PiecesArgs`] says, and nothing may write what is read meanwhile.
    pub unsafe fn read(&self, stream: &Stream, args: &PiecesArgs) -> Result<(), DriverError> {
        let &PiecesArgs { from, pieces, piece_bytes, stride, total, blocks } = args;
        let words = Args::new().address(from).address(pieces).address(piece_bytes).address(stride).address(total);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.read, Grid::of(blocks, THREADS), words) }
    }

    /// Queues products of bf16 into sums of f32, all in registers. `out` gets an f32 of each thread. Errors: of the
    /// driver.
    ///
    /// # Safety
    /// `out` must be the address of [`LimitKernels::outputs`] numbers that nothing else uses meanwhile.
    pub unsafe fn multiply(&self, stream: &Stream, out: u64, rounds: u32, blocks: u32) -> Result<(), DriverError> {
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.multiply, Grid::of(blocks, THREADS), Args::new().number(rounds).address(out)) }
    }

    /// Returns how many numbers [`LimitKernels::multiply`] writes.
    pub fn outputs(blocks: u32) -> usize {
        blocks as usize * THREADS as usize
    }

    /// Returns how many multiplications and additions [`LimitKernels::multiply`] does.
    pub fn operations(rounds: u32, blocks: u32) -> u64 {
        u64::from(blocks) * (u64::from(THREADS) / WARP) * SUMS * u64::from(rounds) * OPERATIONS
    }

    /// Queues a kernel that adds 1 to a u32, and does nothing else. `overlaps`: it may begin before the one ahead of it
    /// has ended, and waits by itself. Errors: of the driver.
    ///
    /// # Safety
    /// `count` must be the address of a u32 of device memory that nothing else uses meanwhile.
    pub unsafe fn count(&self, stream: &Stream, count: u64, overlaps: bool) -> Result<(), DriverError> {
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.count, Grid { overlaps, ..Grid::of(1, COUNTING) }, Args::new().address(count)) }
    }
}
