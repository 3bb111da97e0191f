//! What a device has in its slots. A plan changes them when it is checked, and once more, in the same order, when the
//! device comes to its step.

use crate::device::{BlockError, ChangeError, LimitError, at_most};
use domain::plan::{BlockTable, SlotChange, StepPlan};
use domain::{BlockId, SeqKey, SlotId, Tokens};

/// The block tables and the tokens of all slots, for what executes plans.
#[derive(Clone, Debug)]
pub struct DeviceSlots {
    tables: SlotTables,
    /// Of each slot.
    histories: Vec<Tokens>,
}

impl DeviceSlots {
    /// Makes so many slots, all closed, for a model of so many KV groups.
    pub fn new(slots: usize, groups: usize) -> Self {
        // The check knows the limits.
        let tables = SlotTables::new(slots, vec![u32::MAX; groups], usize::MAX);
        Self { tables, histories: vec![Tokens::default(); slots] }
    }

    /// Takes over the changes of a plan that was checked.
    ///
    /// # Panics
    /// If one of them is unsound.
    pub fn take_over(&mut self, plan: &StepPlan) {
        for change in &plan.changes {
            self.tables.take_over(change, |_, _, _| {}).expect("the plan was checked");
            let history = &mut self.histories[change.slot().0 as usize];
            match change {
                SlotChange::Open { .. } | SlotChange::Close { .. } if history.is_empty() => {}
                SlotChange::Open { .. } | SlotChange::Close { .. } => *history = Tokens::default(),
                SlotChange::History { tokens, .. } => *history = tokens.clone(),
                SlotChange::Tokens { tokens, .. } => tokens.iter().for_each(|&token| history.push(token)),
                SlotChange::Table { .. } => {}
            }
        }
    }

    /// Returns the blocks of an open slot in a KV group.
    pub fn table(&self, slot: SlotId, group: usize) -> &BlockTable {
        &self.tables.slots[slot.0 as usize].tables[group]
    }

    /// Returns the tokens of an open slot.
    pub fn history(&self, slot: SlotId) -> &Tokens {
        &self.histories[slot.0 as usize]
    }
}

/// The block tables of all slots.
#[derive(Clone, Debug)]
pub(crate) struct SlotTables {
    slots: Vec<Slot>,
    /// Blocks of each KV group's pool.
    blocks: Vec<u32>,
    /// The longest sequence in tokens.
    context_max: usize,
}

/// What a slot has.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Whose it is. `None`: it is closed, and its tables are empty.
    pub(crate) key: Option<SeqKey>,
    /// One table per KV group.
    pub(crate) tables: Vec<BlockTable>,
    /// How many tokens of the sequence it has.
    pub(crate) tokens: usize,
}

impl SlotTables {
    /// Makes so many slots, all closed. `blocks`: of each KV group's pool. `context_max`: of the longest sequence, in
    /// tokens.
    pub(crate) fn new(slots: usize, blocks: Vec<u32>, context_max: usize) -> Self {
        let closed = Slot { key: None, tables: vec![BlockTable::default(); blocks.len()], tokens: 0 };
        Self { slots: vec![closed; slots], blocks, context_max }
    }

    /// Returns a slot, if there is one of this number.
    pub(crate) fn get(&self, slot: SlotId) -> Option<&Slot> {
        self.slots.get(slot.0 as usize)
    }

    /// Takes over a change. `moves` hears of each block that a table gets or loses: its group, the block, and whether
    /// it is there now. Errors: [`ChangeError`]; then nothing has changed.
    pub(crate) fn take_over(
        &mut self,
        change: &SlotChange,
        mut moves: impl FnMut(usize, BlockId, bool),
    ) -> Result<(), ChangeError> {
        let (number, slots, groups) = (change.slot(), self.slots.len(), self.blocks.len());
        let slot = self.slots.get_mut(number.0 as usize).ok_or(ChangeError::UnknownSlot { slot: number, slots })?;
        if slot.key.is_none() && !matches!(change, SlotChange::Open { .. } | SlotChange::Close { .. }) {
            return Err(ChangeError::Closed { slot: number });
        }
        match change {
            SlotChange::Open { key, .. } => {
                slot.close(|group, block| moves(group, block, false));
                slot.key = Some(*key);
            }
            SlotChange::Close { .. } => slot.close(|group, block| moves(group, block, false)),
            SlotChange::Table { group, change, .. } => {
                let at = usize::from(group.0);
                let table = slot.tables.get_mut(at).ok_or(ChangeError::UnknownGroup { group: *group, groups })?;
                let blocks = self.blocks[at];
                if let Some(&block) = change.blocks.iter().find(|block| block.0 >= blocks) {
                    return Err(BlockError { group: at, block, blocks }.into());
                }
                let Some(kept) = table.kept(change) else {
                    let (held, needed) = (table.first..table.end(), change.first..change.from);
                    return Err(ChangeError::Gap { slot: number, group: *group, needed, held });
                };
                // A pool has each of its blocks once.
                let count = kept.len() + change.blocks.len();
                let end = usize::try_from(change.from).ok().and_then(|from| from.checked_add(change.blocks.len()));
                if count > blocks as usize || end.is_none_or(|end| u32::try_from(end).is_err()) {
                    return Err(LimitError { what: "blocks of a table", count, limit: blocks as usize }.into());
                }
                let lost = table.blocks[..kept.start].iter().chain(&table.blocks[kept.end..]);
                lost.for_each(|&block| moves(at, block, false));
                change.blocks.iter().for_each(|&block| moves(at, block, true));
                table.change(change, kept);
            }
            SlotChange::History { tokens, .. } => {
                slot.tokens = at_most("tokens of a slot", tokens.len(), self.context_max)?;
            }
            SlotChange::Tokens { tokens, .. } => {
                slot.tokens = at_most("tokens of a slot", slot.tokens + tokens.len(), self.context_max)?;
            }
        }
        Ok(())
    }

    /// Closes all slots. `loses` hears of each block that a table loses, and its group.
    pub(crate) fn close_all(&mut self, mut loses: impl FnMut(usize, BlockId)) {
        self.slots.iter_mut().for_each(|slot| slot.close(&mut loses));
    }
}

impl Slot {
    fn close(&mut self, mut loses: impl FnMut(usize, BlockId)) {
        (self.key, self.tokens) = (None, 0);
        for (group, table) in self.tables.iter_mut().enumerate() {
            table.blocks.drain(..).for_each(|block| loses(group, block));
            table.first = 0;
        }
    }
}
