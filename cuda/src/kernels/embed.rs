//! Rows of the embedding for the tokens of a step.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("embed.cu");

/// Threads of a block.
const THREADS: u32 = 128;
/// Numbers of a row that a block takes.
const BLOCK_NUMBERS: u32 = THREADS * 8;
/// Numbers of a row that a warp takes.
const WARP_NUMBERS: u32 = 256;

/// The kernel.
#[derive(Clone, Debug)]
pub struct Embed(Function);

/// Operands; addresses are of device memory. `out[row] = table[token of the row] * scale`, rounded to bf16.
#[derive(Clone, Copy, Debug)]
pub struct EmbedArgs {
    /// The embedding in bf16, `[vocab][width]`.
    pub table: u64,
    /// Tokens in i32, `[rows]`. Below zero: the sample of number `-1 - token` of the step before. A token outside of
    /// the vocabulary becomes a row of zeros.
    pub tokens: u64,
    /// What the step before sampled, in u32; what is no token where nothing was.
    pub sampled: u64,
    /// Rows of bf16, `[rows][width]`.
    pub out: u64,
    /// One word per row, which becomes 1 where the token is none.
    pub broken: u64,
    /// Rows.
    pub rows: u32,
    /// Numbers of a row, a multiple of 8.
    pub width: u32,
    /// Rows of the embedding.
    pub vocab: u32,
    /// Multiplies all numbers.
    pub scale: f32,
}

impl Embed {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        Ok(Self(loader.module(&SOURCE)?.function("embed")?))
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`EmbedArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &EmbedArgs) -> Result<(), DriverError> {
        let &EmbedArgs { table, tokens, sampled, out, broken, rows, width, vocab, scale } = args;
        let words = Args::new().address(table).address(tokens).address(sampled).address(out).address(broken);
        let words = words.number(rows).number(width).number(vocab).float(scale);
        let blocks = (rows * width.div_ceil(WARP_NUMBERS)).div_ceil(BLOCK_NUMBERS / WARP_NUMBERS);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.0, Grid { overlaps: true, ..Grid::of(blocks, THREADS) }, words) }
    }
}
