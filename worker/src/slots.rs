//! Which slot of the device each sequence has, and what the device was told of it. A plan tells what changed since.

use crate::sequence::Sequence;
use domain::plan::SlotChange;
use domain::{SeqKey, SlotId, StepId};
use kv_manager::KvManager;
use scheduler::Work;
use std::collections::HashMap;

/// The slots of the device. A sequence that ended gives its slot back with the next plan. If all are taken, the
/// sequence that was computed least recently loses its slot. It is told as a whole when it is computed again.
#[derive(Debug)]
pub(crate) struct Slots {
    holders: Vec<Option<Holder>>,
    of: HashMap<SeqKey, SlotId>,
}

/// A sequence that has a slot.
#[derive(Debug)]
struct Holder {
    key: SeqKey,
    /// Tokens that the device was told of, if any.
    tokens: Option<usize>,
    /// The last step that computes it.
    last: StepId,
}

impl Slots {
    /// Makes so many slots, all closed.
    pub(crate) fn new(slots: usize) -> Self {
        Self { holders: (0..slots).map(|_| None).collect(), of: HashMap::with_capacity(slots) }
    }

    /// Returns the slot of a sequence of the step that [`changes`](Self::changes) was last asked for.
    pub(crate) fn slot(&self, key: SeqKey) -> SlotId {
        self.of[&key]
    }

    /// Gives each sequence of the step a slot, and returns what the plan tells the device.
    ///
    /// # Panics
    /// If the step has more sequences than there are slots.
    pub(crate) fn changes(
        &mut self,
        step: StepId,
        work: &[Work],
        sequences: &HashMap<SeqKey, Sequence>,
        kv: &mut KvManager,
    ) -> Vec<SlotChange> {
        let mut changes = Vec::new();
        for (slot, holder) in (0..).map(SlotId).zip(&mut self.holders) {
            // Its key may be open again.
            if let Some(ended) = holder.take_if(|holder| !kv.is_told(holder.key)) {
                self.of.remove(&ended.key);
                changes.push(SlotChange::Close { slot });
            }
        }
        for work in work {
            if let Some(SlotId(slot)) = self.of.get(&work.key)
                && let Some(holder) = &mut self.holders[*slot as usize]
            {
                holder.last = step;
            }
        }
        for key in work.iter().map(|work| work.key) {
            if !self.of.contains_key(&key) {
                let slot = self.vacate(step);
                self.holders[slot.0 as usize] = Some(Holder { key, tokens: None, last: step });
                self.of.insert(key, slot);
                kv.tell_all(key);
                changes.push(SlotChange::Open { slot, key });
            }
        }
        // Sequences that the step does not compute change too: blocks fall out of their windows, or are taken over from
        // the cache. What they lost may be another sequence's in this step.
        for (slot, holder) in (0..).map(SlotId).zip(&self.holders) {
            let Some(holder) = holder else { continue };
            changes.extend(kv.changes(holder.key).map(|(group, change)| SlotChange::Table { slot, group, change }));
        }
        for key in work.iter().filter(|work| work.samples > 0).map(|work| work.key) {
            changes.extend(self.tokens(key, &sequences[&key]));
        }
        changes
    }

    /// Notes that the device has closed all slots.
    pub(crate) fn close_all(&mut self) {
        self.holders.fill_with(|| None);
        self.of.clear();
    }

    /// Returns a free slot, or else that of the sequence which was computed least recently.
    fn vacate(&mut self, step: StepId) -> SlotId {
        let last = |holder: &Option<Holder>| holder.as_ref().map(|holder| holder.last);
        let slots = (0..).map(SlotId).zip(&self.holders).filter(|(_, holder)| last(holder) != Some(step));
        let (slot, _) = slots.min_by_key(|(_, holder)| last(holder)).expect("a step has no more sequences than slots");
        if let Some(loser) = self.holders[slot.0 as usize].take() {
            self.of.remove(&loser.key);
        }
        slot
    }

    /// Returns what the device is told of the tokens of a sequence that is sampled by them.
    fn tokens(&mut self, key: SeqKey, sequence: &Sequence) -> Option<SlotChange> {
        let slot = self.of[&key];
        let holder = self.holders[slot.0 as usize].as_mut().filter(|_| sequence.params.needs_history())?;
        let known = sequence.tokens.len();
        match holder.tokens.replace(known).filter(|told| *told <= known) {
            None => Some(SlotChange::History { slot, tokens: sequence.tokens.clone() }),
            Some(told) if told == known => None,
            Some(told) => Some(SlotChange::Tokens { slot, tokens: sequence.tokens.at(told..known).into_owned() }),
        }
    }
}

#[cfg(test)]
mod tests;
