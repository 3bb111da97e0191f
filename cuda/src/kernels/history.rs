//! Marks of the tokens that sequences have seen, which penalties go by.
//!
//! A sequence that is penalized has a row of one word per token of the vocabulary. A step adds the tokens that it
//! brings, so its cost does not grow with the context.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};
use std::slice;

pub(super) const SOURCE: Source = source!("history.cu");

/// Threads of a block.
const THREADS: u32 = 256;

/// Tokens that a row of marks gets. The kernels read an array of these.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryRun {
    /// The marks, `[vocab]` words of 32 bits in device memory, aligned to 16 bytes.
    pub counts: u64,
    /// The tokens, one u32 each in device memory; those outside of the vocabulary are passed over.
    pub tokens: u64,
    /// Number of tokens.
    pub len: u32,
    /// How many of them, from the first on, are of the prompt. The others are of the output.
    pub prompt: u32,
    /// Not zero: what the row had is forgotten first. All runs of a launch that have the row add to it then.
    pub clears: u32,
    /// Unused.
    pub unused: u32,
}

impl HistoryRun {
    /// Returns the bytes that the device has of runs.
    pub fn bytes(runs: &[Self]) -> &[u8] {
        // SAFETY: all bytes of a run belong to a field.
        unsafe { slice::from_raw_parts(runs.as_ptr().cast(), size_of_val(runs)) }
    }
}

const _: () = assert!(size_of::<HistoryRun>() == 32);

/// The kernels.
#[derive(Clone, Debug)]
pub struct History {
    clear: Function,
    add: Function,
}

/// Operands in device memory.
#[derive(Clone, Copy, Debug)]
pub struct HistoryArgs {
    /// [`HistoryRun`]s.
    pub runs: u64,
    /// One word of 32 bits: the number of runs.
    pub count: u64,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Runs that are worked on at once; there may be more.
    pub slots: u32,
    /// Blocks that share a run.
    pub parts: u32,
    /// Whether a run may clear its row.
    pub clears: bool,
}

impl History {
    /// Loads them. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        let module = loader.module(&SOURCE)?;
        Ok(Self { clear: module.function("history_clear")?, add: module.function("history_add")? })
    }

    /// Queues them. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`HistoryArgs`] and [`HistoryRun`] say, and nothing else may use the marks meanwhile.
    pub unsafe fn launch(&self, stream: &Stream, args: &HistoryArgs) -> Result<(), DriverError> {
        let &HistoryArgs { runs, count, vocab, slots, parts, clears } = args;
        let grid = Grid { blocks: [parts, slots, 1], overlaps: true, ..Grid::of(0, THREADS) };
        let words = Args::new().address(runs).address(count).number(vocab);
        // SAFETY: as the caller says.
        unsafe {
            if clears {
                stream.launch(&self.clear, grid, words)?;
            }
            stream.launch(&self.add, grid, words)
        }
    }
}
