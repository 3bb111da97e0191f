//! Sums of normed rows in fixed point.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("hidden_sum.cu");

/// Threads of a block.
const THREADS: u32 = 256;
/// Columns of a block.
const COLUMNS: u32 = 128;
/// Blocks for entries of the list, at most: more entries are taken in turns.
const LISTS_AT_ONCE: u32 = 16;

/// The kernel.
#[derive(Clone, Debug)]
pub struct HiddenSums(Function);

/// Rows that are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummedRows {
    /// The first row.
    pub first: u32,
    /// How many there are, one behind the other.
    pub count: u32,
    /// Which sum they are added to. Each sum is in a list once.
    pub sum: u32,
}

/// Operands; addresses are of device memory. Numbers are in units of 2^-32 in a sum, rounded to nearest, ties away from
/// zero; beyond the largest number a sum stays there.
#[derive(Clone, Copy, Debug)]
pub struct HiddenSumsArgs {
    /// Rows of bf16 behind the last norm, `[rows][width]`.
    pub normed: u64,
    /// The list, [`SummedRows::words`] each.
    pub lists: u64,
    /// One u32: how many entries the list has.
    pub count: u64,
    /// Sums in i64, `[sums][width]`, which the rows are added to.
    pub sums: u64,
    /// One word per row, which becomes 1 where a number is infinite or none.
    pub broken: u64,
    /// Numbers of a row, a multiple of 8.
    pub width: u32,
}

impl SummedRows {
    /// Returns it as the kernel reads it.
    pub fn words(self) -> [u32; 3] {
        [self.first, self.count, self.sum]
    }
}

impl HiddenSums {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        Ok(Self(loader.module(&SOURCE)?.function("hidden_sum")?))
    }

    /// Queues it. The grid depends on the width alone. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`HiddenSumsArgs`] says, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &HiddenSumsArgs) -> Result<(), DriverError> {
        let &HiddenSumsArgs { normed, lists, count, sums, broken, width } = args;
        let words = Args::new().address(normed).address(lists).address(count).address(sums).address(broken);
        let blocks = [width.div_ceil(COLUMNS), LISTS_AT_ONCE, 1];
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.0, Grid { overlaps: true, blocks, ..Grid::of(1, THREADS) }, words.number(width)) }
    }
}
