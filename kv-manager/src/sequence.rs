//! What the manager knows of one open sequence.

use domain::plan::BlockTable;
use domain::{BlockId, BlockRef, GroupId, LeaseId, Tenant};

/// An open sequence: its blocks and how far they are written.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// Whose it is.
    pub(crate) tenant: Tenant,
    /// One table per group. In full groups, and in windowed ones once the prompt has come so far, it ends at block
    /// `blocks`.
    pub(crate) tables: Vec<BlockTable>,
    /// Per group, what the device was told of the table. `None`: nothing.
    pub(crate) told: Vec<Option<Told>>,
    /// Per group, the last blocks of a prompt whose table does not reach them yet. They are taken with the first ones,
    /// since an offer names them. Those between the table and these are taken chunk by chunk.
    pub(crate) ends: Vec<Vec<BlockId>>,
    /// The positions below `blocks * block_tokens` have slots, or will have them when a step writes them (save those
    /// that fell out of a window).
    pub(crate) blocks: u32,
    /// Positions below this are written and valid.
    pub(crate) written: u32,
    /// Positions below this were made writable for steps that were planned; those from `written` on may be in flight.
    pub(crate) planned: u32,
    /// Blocks below this are sealed under their hashes.
    pub(crate) sealed: u32,
    /// Positions below this are a fetch's destination: until they are written nothing of it may be offered or forked.
    pub(crate) fetched: u32,
    /// Leases given on it, the ended ones among them until the next offer.
    pub(crate) leases: Vec<LeaseId>,
    /// Copies that a step may still have to make.
    pub(crate) copying: Vec<Copying>,
}

/// What the device was told of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// The number of the table's first block then.
    pub(crate) first: u32,
    /// The blocks below this number are what they were then.
    pub(crate) same: u32,
}

/// A copy on write that may not have been made yet, and keeps its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    /// The source.
    pub(crate) source: BlockRef,
    /// First position of the block copied: from there on the sequence's memory is not what `written` says.
    pub(crate) start: u32,
    /// The copy has been made when positions below this are written: copies come first in a step.
    pub(crate) until: u32,
}

impl Told {
    /// Notes that the block is another one than it was.
    pub(crate) fn changes(&mut self, number: u32) {
        self.same = self.same.min(number);
    }
}

impl Sequence {
    /// Returns the block behind the last one of the group's table.
    pub(crate) fn table_end(&self, group: GroupId) -> u32 {
        self.tables[usize::from(group.0)].end()
    }

    /// Returns the number of the first of the group's last blocks that are not in its table.
    pub(crate) fn ends_from(&self, group: GroupId) -> u32 {
        self.blocks - self.ends[usize::from(group.0)].len() as u32
    }

    /// Returns how many blocks of the group are not taken yet: those between its table and its last ones.
    pub(crate) fn gap(&self, group: GroupId) -> u32 {
        self.ends_from(group) - self.table_end(group)
    }

    /// Returns block `number` of the group. `None`: it is not taken yet, or fell out of the window.
    pub(crate) fn block(&self, group: GroupId, number: u32) -> Option<BlockId> {
        let of = usize::from(group.0);
        let (blocks, first) = if number < self.table_end(group) {
            (&self.tables[of].blocks, self.tables[of].first)
        } else {
            (&self.ends[of], self.ends_from(group))
        };
        blocks.get(number.checked_sub(first)? as usize).copied()
    }

    /// Returns whether all that it holds is written by the engine here or was validated.
    pub(crate) fn is_validated(&self) -> bool {
        self.written >= self.fetched
    }

    /// Returns the end of the positions that are written and in the blocks that the tables name.
    pub(crate) fn ready(&self) -> u32 {
        self.copying.iter().map(|copy| copy.start).fold(self.written, u32::min)
    }

    /// Returns the position below which everything has to be written, so that no copy is left to be made.
    pub(crate) fn copied_until(&self) -> u32 {
        self.copying.iter().map(|copy| copy.until).max().unwrap_or(0)
    }
}
