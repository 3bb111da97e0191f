//! Changes of the block tables of slots.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("update_tables.cu");

/// Threads of a block.
const THREADS: u32 = 128;
/// Blocks: more changes than these have warps for are taken in turns.
const BLOCKS: u32 = 64;

/// The kernel.
#[derive(Clone, Debug)]
pub struct UpdateTables(Function);

/// New entries of the table that a slot has for a KV group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableUpdate {
    /// The KV group.
    pub group: u32,
    /// The slot.
    pub slot: u32,
    /// The first entry that changes: the number of a block in its sequence.
    pub first: u32,
    /// How many entries change.
    pub count: u32,
    /// The first of the new entries in the list of all.
    pub from: u32,
}

/// Operands; addresses are of device memory.
#[derive(Clone, Copy, Debug)]
pub struct UpdateTablesArgs {
    /// Tables of u32, `[groups][slots][blocks_max]`.
    pub tables: u64,
    /// The changes, [`TableUpdate::words`] each. Where two have the same entry, the later one counts.
    pub updates: u64,
    /// One u32: how many changes there are.
    pub count: u64,
    /// The new entries of all changes, in u32.
    pub entries: u64,
    /// Slots of a group.
    pub slots: u32,
    /// Entries of a table.
    pub blocks_max: u32,
}

impl TableUpdate {
    /// Returns it as the kernel reads it.
    pub fn words(self) -> [u32; 5] {
        [self.group, self.slot, self.first, self.count, self.from]
    }
}

impl UpdateTables {
    /// Loads it. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        Ok(Self(loader.module(&SOURCE)?.function("update_tables")?))
    }

    /// Queues it, in a grid that is always the same. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`UpdateTablesArgs`] says, all changes must be inside the tables and the list of
    /// entries, and nothing else may use what is written.
    pub unsafe fn launch(&self, stream: &Stream, args: &UpdateTablesArgs) -> Result<(), DriverError> {
        let &UpdateTablesArgs { tables, updates, count, entries, slots, blocks_max } = args;
        let words = Args::new().address(tables).address(updates).address(count).address(entries);
        let words = words.number(slots).number(blocks_max);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.0, Grid { overlaps: true, ..Grid::of(BLOCKS, THREADS) }, words) }
    }
}
