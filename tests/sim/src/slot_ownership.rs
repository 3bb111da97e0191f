//! Whose the slots of a tier of a worker are, as its moves tell it.

use crate::disk::Move;
use domain::{GroupId, Tenant};
use kv_manager::tiers::{ReadEnd, Slot, TierRecord};
use std::collections::{BTreeMap, BTreeSet};

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
pub(crate) struct SlotOwnership(BTreeMap<Slot, Taken>);

impl SlotOwnership {
    /// What a life begins with. Of what lies there twice the last counts.
    pub(crate) fn recovered<'a>(records: impl DoubleEndedIterator<Item = &'a TierRecord>) -> Self {
        let mut seen = BTreeSet::new();
        let new = records.rev().filter(|record| seen.insert((record.slot.group, record.hash)));
        let taken = |record: &TierRecord| Taken { tenant: record.tenant, writing: false, readers: 0, wrong: false };
        Self(new.map(|record| (record.slot, taken(record))).collect())
    }

    /// A move takes the slot, which belongs to the tenant of what is written from now on. Of what is lifted nobody
    /// says whose it is.
    pub(crate) fn takes(&mut self, slot: Slot, what: &Move) {
        let tenant = if let Move::Write(write) = what { write.tenant } else { Tenant::UNKNOWN };
        self.0.insert(slot, Taken { tenant, writing: true, readers: 0, wrong: false });
    }

    /// A read begins.
    pub(crate) fn reads(&mut self, slot: Slot) {
        self.0.get_mut(&slot).into_iter().for_each(|taken| taken.readers += 1);
    }

    /// A worker hears how a write, or what it lifted to the slot, ended.
    pub(crate) fn wrote(&mut self, slot: Slot, there: bool) {
        if there {
            self.0.get_mut(&slot).into_iter().for_each(|taken| taken.writing = false);
        } else {
            self.0.remove(&slot);
        }
    }

    /// A worker hears how a read of the slot ended.
    pub(crate) fn read(&mut self, slot: Slot, end: ReadEnd) {
        let Some(taken) = self.0.get_mut(&slot) else { return };
        taken.readers -= 1;
        taken.wrong |= matches!(end, ReadEnd::Wrong | ReadEnd::Missing);
        if taken.wrong && taken.readers == 0 {
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
