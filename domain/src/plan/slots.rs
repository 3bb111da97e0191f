//! Slots: what a device keeps of sequences from step to step, so that a plan tells only what changed. What a step costs
//! its host does not depend on how long its contexts are.

use crate::ids::{BlockId, GroupId, SeqKey, SlotId, Token};
use crate::tokens::Tokens;
use std::ops::Range;

/// A change of a device slot. A slot is closed until it is opened.
#[derive(Clone, Debug, PartialEq)]
pub enum SlotChange {
    /// The slot is this sequence's from here on. What it had before is forgotten, and it has no blocks and no tokens.
    Open {
        /// The slot, which may be open.
        slot: SlotId,
        /// The sequence.
        key: SeqKey,
    },
    /// The slot is closed. Its blocks may be another sequence's from here on.
    Close {
        /// The slot, which may be closed.
        slot: SlotId,
    },
    /// The table of one KV group changed.
    Table {
        /// Its slot.
        slot: SlotId,
        /// The KV group of the blocks.
        group: GroupId,
        /// What changed of it.
        change: TableChange,
    },
    /// The tokens of the sequence as far as the host knows them, in place of those that the slot has. Only the slots of
    /// sequences that are sampled by their history have any ([`needs_history`](crate::SamplingParams::needs_history)).
    History {
        /// Its slot.
        slot: SlotId,
        /// All of its prompt, and the output so far.
        tokens: Tokens,
    },
    /// Tokens of the output behind those that the slot has.
    Tokens {
        /// Its slot.
        slot: SlotId,
        /// The tokens.
        tokens: Vec<Token>,
    },
}

impl SlotChange {
    /// Returns the slot that changes.
    pub fn slot(&self) -> SlotId {
        match self {
            Self::Open { slot, .. }
            | Self::Close { slot }
            | Self::Table { slot, .. }
            | Self::History { slot, .. }
            | Self::Tokens { slot, .. } => *slot,
        }
    }

    /// Returns the changes that open a slot with these tables, one per KV group.
    pub fn open(slot: SlotId, key: SeqKey, tables: impl IntoIterator<Item = BlockTable>) -> Vec<Self> {
        let whole = |(group, table): (u16, BlockTable)| {
            let change = TableChange { first: table.first, from: table.first, blocks: table.blocks };
            Self::Table { slot, group: GroupId(group), change }
        };
        [Self::Open { slot, key }].into_iter().chain((0..).zip(tables).map(whole)).collect()
    }
}

/// Blocks of one sequence in one group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BlockTable {
    /// Which block of the sequence `blocks[0]` is: larger than zero where earlier ones fell out of the window. Position
    /// `p` is in `blocks[p / block_tokens - first]`.
    pub first: u32,
    /// The blocks, gapless.
    pub blocks: Vec<BlockId>,
}

/// What changed of a [`BlockTable`]: it loses the blocks before `first`, and those from number `from` on are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// The number of the table's first block.
    pub first: u32,
    /// The number of the first block that is replaced or added; at least `first`.
    pub from: u32,
    /// The blocks from there on. The table ends with them.
    pub blocks: Vec<BlockId>,
}

impl BlockTable {
    /// Returns the number of the block behind the last one.
    pub fn end(&self) -> u32 {
        self.first + self.blocks.len() as u32
    }

    /// Returns which entries of `blocks` stay when `change` is taken over. `None`: some of them are not there.
    pub fn kept(&self, change: &TableChange) -> Option<Range<usize>> {
        if change.first == change.from {
            return Some(0..0);
        }
        let is_there = self.first <= change.first && change.first < change.from && change.from <= self.end();
        is_there.then(|| (change.first - self.first) as usize..(change.from - self.first) as usize)
    }

    /// Takes over a change of which the entries `kept` stay.
    pub fn change(&mut self, change: &TableChange, kept: Range<usize>) {
        self.blocks.truncate(kept.end);
        self.blocks.drain(..kept.start);
        self.blocks.extend_from_slice(&change.blocks);
        self.first = change.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(numbers: &[u32]) -> Vec<BlockId> {
        numbers.iter().copied().map(BlockId).collect()
    }

    #[test]
    fn a_table_loses_its_first_blocks_and_gets_others_behind() {
        let before = BlockTable { first: 2, blocks: blocks(&[20, 30, 40]) };
        for (first, from, new, after) in [
            (2, 5, &[50][..], &[20, 30, 40, 50][..]),
            (2, 4, &[41, 50], &[20, 30, 41, 50]),
            (4, 5, &[], &[40]),
            (3, 4, &[], &[30]),
            (7, 7, &[70], &[70]),
            (0, 0, &[1, 2], &[1, 2]),
            (2, 2, &[], &[]),
        ] {
            let change = TableChange { first, from, blocks: blocks(new) };
            let mut table = before.clone();
            let kept = table.kept(&change).expect("nothing lacks");
            table.change(&change, kept);
            assert_eq!(table, BlockTable { first, blocks: blocks(after) }, "{change:?}");
        }
    }

    #[test]
    fn a_change_behind_blocks_that_are_not_there_is_none() {
        let table = BlockTable { first: 2, blocks: blocks(&[20, 30, 40]) };
        for (first, from) in [(2, 6), (1, 3), (5, 4), (6, 7)] {
            assert_eq!(table.kept(&TableChange { first, from, blocks: Vec::new() }), None, "{first}..{from}");
        }
    }
}
