//! Queries, keys and values between their product and attention: norms of heads, rotary embedding, the paged cache,
//! and the word that tells others how far it is written.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("rope_cache.cu");

/// Threads of a block.
const THREADS: u32 = 128;
/// Numbers of a head that a lane has.
const LANE_NUMBERS: u32 = 16;

/// The kernel.
#[derive(Clone, Debug)]
pub struct RopeCache {
    heads: Function,
    progress: Function,
}

/// RMS norm on queries and keys. Weights are in f32, in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorm {
    /// None.
    None,
    /// Each head by itself; the weights, `[dim]`, are those of all query heads, and of all key heads.
    Heads {
        /// Weights of queries.
        query: u64,
        /// Weights of keys.
        key: u64,
    },
    /// All query heads together, and all key heads: `[query_heads][dim]` and `[kv_heads][dim]`.
    Width {
        /// Weights of queries.
        query: u64,
        /// Weights of keys.
        key: u64,
    },
}

/// The word by which readers of the cache know how far it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressArgs {
    /// Two u64 of device memory: the mark of the step without a layer (its number times 2^16), then whether a reader
    /// waits. Where none does, nothing is raised.
    pub step: u64,
    /// The device's address of the word, u64 of pinned host memory. It becomes the mark of the step plus `layer + 1`.
    pub word: u64,
    /// The layer.
    pub layer: u32,
}

/// Operands; addresses are of device memory.
#[derive(Clone, Copy, Debug)]
pub struct RopeCacheArgs {
    /// Rows of bf16, `[rows][query_heads + 2 * kv_heads][dim]`: queries, keys, values.
    pub heads: u64,
    /// Queries in bf16, `[rows][query_heads][dim]`. Those of padding rows stay as they are.
    pub queries: u64,
    /// The layer's slice of block 0 of the pool.
    pub slices: u64,
    /// Bytes from a block's record to the next one's, a multiple of 16.
    pub record_bytes: u64,
    /// Block tables of the layer's KV group, u32, `[slots][blocks_max]`.
    pub tables: u64,
    /// Position of each row, u32.
    pub positions: u64,
    /// Slot of each row, u32; all bits set: a padding row, of which nothing is written.
    pub slots: u64,
    /// Of each row the position behind the last row of its span in this step, u32. The row that begins a block makes
    /// the positions of the block from there on zero.
    pub ends: u64,
    /// Cosines and sines in f32, `[positions][rotated]`: of each position half of them cosines, then as many sines.
    pub rotary: u64,
    /// What queries are multiplied by, f32, `[positions]`; 0: nothing.
    pub growth: u64,
    /// Norms of queries and keys.
    pub norm: HeadNorm,
    /// One word per row, which becomes 1 where a number is infinite or none.
    pub broken: u64,
    /// Rows.
    pub rows: u32,
    /// Query heads.
    pub query_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Numbers of a head: a multiple of 8 up to 256.
    pub dim: u32,
    /// Numbers of a head that are rotated, even: the first ones; 0: none. Multiples of 16 are fast.
    pub rotated: u32,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Entries of a block table.
    pub blocks_max: u32,
    /// Blocks of the grid, at most, and above 0: about as many as the card has at once, 8 for each multiprocessor. What
    /// more there is they take in turns. It changes no bit.
    pub grid_max: u32,
    /// Added to mean squares.
    pub eps: f32,
    /// The progress that rises once all is written, and a u32 of zero that launches share which never run at once.
    /// `None`: it does not rise, since other launches write the same layer.
    pub progress: Option<(ProgressArgs, u64)>,
}

impl RopeCacheArgs {
    fn blocks(&self) -> u32 {
        let heads = self.rows * (self.query_heads + 2 * self.kv_heads);
        let lanes = self.dim.div_ceil(LANE_NUMBERS).next_power_of_two().max(4);
        let blocks = match self.norm {
            HeadNorm::Width { .. } => self.rows,
            HeadNorm::None | HeadNorm::Heads { .. } => heads.div_ceil(THREADS / lanes),
        };
        blocks.min(self.grid_max)
    }

    fn words(&self) -> Args {
        let (query, key, by_width) = match self.norm {
            HeadNorm::None => (0, 0, 0),
            HeadNorm::Heads { query, key } => (query, key, 0),
            HeadNorm::Width { query, key } => (query, key, 1),
        };
        let none = (ProgressArgs { step: 0, word: 0, layer: 0 }, 0);
        let (ProgressArgs { step, word, layer }, ticket) = self.progress.unwrap_or(none);
        let words = Args::new().address(self.heads).address(self.queries).address(self.slices).address(self.tables);
        let words = words.address(self.positions).address(self.slots).address(self.ends);
        let words = words.address(self.rotary).address(self.growth).address(query).address(key).address(self.broken);
        let words = words.address(ticket).address(step).address(word).address(self.record_bytes);
        let words = words.number(self.rows).number(self.query_heads).number(self.kv_heads).number(self.dim);
        let words = words.number(self.rotated).number(self.block_tokens).number(self.blocks_max).number(layer);
        words.float(self.eps).number(by_width)
    }
}

impl RopeCache {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        let module = loader.module(&SOURCE)?;
        Ok(Self { heads: module.function("rope_cache")?, progress: module.function("raise_progress")? })
    }

    /// Queues it. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`RopeCacheArgs`] says, and nothing else may use what is written. The tables must have a
    /// block of the pool for each row's position, and rows must have different places in the cache.
    pub unsafe fn launch(&self, stream: &Stream, args: &RopeCacheArgs) -> Result<(), DriverError> {
        let grid = Grid { overlaps: true, ..Grid::of(args.blocks(), THREADS) };
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.heads, grid, args.words()) }
    }

    /// Queues a rise of the progress alone, behind the last of several launches that write a layer. Errors: of the
    /// driver.
    ///
    /// # Safety
    /// The addresses must be as [`ProgressArgs`] says.
    pub unsafe fn raise(&self, stream: &Stream, args: &ProgressArgs) -> Result<(), DriverError> {
        let words = Args::new().address(args.step).address(args.word).number(args.layer);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.progress, Grid { overlaps: true, ..Grid::of(1, 1) }, words) }
    }
}
