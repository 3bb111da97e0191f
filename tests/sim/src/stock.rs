//! Whose the slots of a worker's disk are, as its moves tell it.

use crate::disk::Move;
use domain::{GroupId, Tenant};
use kv_manager::tiers::{ReadEnd, Slot, TierRecord, WriteEnd};
use std::collections::{BTreeMap, BTreeSet};
use worker::TierEnd;

/// A slot that is taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    tenant: Tenant,
    writing: bool,
    readers: u32,
    /// A read found it wrong.
    wrong: bool,
}

/// The slots that are taken in a life of a worker.
#[derive(Default)]
pub(crate) struct Stock(BTreeMap<Slot, Taken>);

impl Stock {
    /// What a life begins with. Of what lies there twice the last counts.
    pub(crate) fn recovered<'a>(records: impl DoubleEndedIterator<Item = &'a TierRecord>) -> Self {
        let mut seen = BTreeSet::new();
        let new = records.rev().filter(|record| seen.insert((record.slot.group, record.hash)));
        let taken = |record: &TierRecord| Taken { tenant: record.tenant, writing: false, readers: 0, wrong: false };
        Self(new.map(|record| (record.slot, taken(record))).collect())
    }

    /// A move begins. What a write takes belongs to its tenant from now on.
    pub(crate) fn begins(&mut self, what: &Move) {
        match what {
            Move::Write(write) => {
                let taken = Taken { tenant: write.tenant, writing: true, readers: 0, wrong: false };
                self.0.insert(write.place.slot, taken);
            }
            Move::Read(_, read) => {
                self.0.get_mut(&read.place.slot).into_iter().for_each(|taken| taken.readers += 1);
            }
        }
    }

    /// A worker hears of the end of a move.
    pub(crate) fn ended(&mut self, end: &TierEnd) {
        let (slot, taken) = match end {
            TierEnd::Wrote { write, .. } => (write.place.slot, self.0.get_mut(&write.place.slot)),
            TierEnd::Read { read, .. } => (read.place.slot, self.0.get_mut(&read.place.slot)),
            _ => return,
        };
        let Some(taken) = taken else { return };
        let free = match end {
            TierEnd::Wrote { end, .. } => {
                taken.writing = false;
                *end == WriteEnd::Failed
            }
            TierEnd::Read { end, .. } => {
                taken.readers -= 1;
                taken.wrong |= matches!(end, ReadEnd::Wrong | ReadEnd::Missing);
                taken.wrong && taken.readers == 0
            }
            _ => false,
        };
        if free {
            self.0.remove(&slot);
        }
    }

    /// Whose the slot is, if it is taken, and whether it may be given up.
    pub(crate) fn of(&self, slot: Slot) -> Option<(Tenant, bool)> {
        self.0.get(&slot).map(|taken| (taken.tenant, taken.is_idle()))
    }

    /// How many slots of a group each tenant has, and whether one of them may be given up.
    pub(crate) fn shares(&self, group: GroupId) -> BTreeMap<Tenant, (u32, bool)> {
        let mut shares = BTreeMap::<Tenant, (u32, bool)>::new();
        for taken in self.0.iter().filter(|(slot, _)| slot.group == group).map(|(_, taken)| taken) {
            let (has, spares) = shares.entry(taken.tenant).or_default();
            *has += 1;
            *spares |= taken.is_idle();
        }
        shares
    }
}

impl Taken {
    fn is_idle(&self) -> bool {
        !self.writing && self.readers == 0
    }
}
