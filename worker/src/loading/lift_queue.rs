//! Which prompts are lifted for, and which lifts are in progress.

use domain::{BlockHash, GroupId, SeqKey, Time};
use kv_manager::tiers::{Tier, TierLift};
use std::collections::{BTreeSet, VecDeque};

/// A record to lift, and where it is.
pub(super) type Liftable = (Tier, GroupId, BlockHash);

/// A lift in progress.
#[derive(Debug)]
pub(super) struct LiftInProgress {
    pub(super) prompt: SeqKey,
    pub(super) lift: TierLift,
    /// The tier that moves it: first where it is read, then where it lands.
    pub(super) by: Tier,
}

/// What is lifted for prompts that wait for room.
#[derive(Debug, Default)]
pub(crate) struct Lifts {
    /// Prompts that were not looked at yet, the first one first.
    pub(super) queue: VecDeque<SeqKey>,
    /// The prompt that is served, and what is still to be lifted for it.
    pub(super) serving: Option<(SeqKey, VecDeque<Liftable>)>,
    pub(super) in_progress: Vec<LiftInProgress>,
    /// Prompts that still wait, for which a lift has begun.
    pub(super) served: BTreeSet<SeqKey>,
    /// The prompt that has room and waits for its lifts to end, and since when.
    pub(super) stopping: Option<(SeqKey, Time)>,
}

impl Lifts {
    /// Returns the number of lifts in progress, and of prompts that are or will be lifted for.
    pub(crate) fn len(&self) -> usize {
        self.in_progress.len() + self.queue.len() + usize::from(self.serving.is_some()) + self.served.len()
    }

    /// Adds a prompt that waits for room behind all that wait already.
    pub(super) fn enqueue(&mut self, prompt: SeqKey) {
        self.queue.push_back(prompt);
    }

    /// Begins no further lift for the prompt.
    pub(super) fn stop(&mut self, prompt: SeqKey) {
        self.queue.retain(|&waits| waits != prompt);
        self.serving.take_if(|(serves, _)| *serves == prompt);
    }

    /// Returns the lifts in progress for the prompt.
    pub(super) fn for_prompt(&self, prompt: SeqKey) -> impl Iterator<Item = &LiftInProgress> {
        self.in_progress.iter().filter(move |one| one.prompt == prompt)
    }

    /// Notes that the lift was read, and lands now.
    pub(super) fn on_landing(&mut self, lift: &TierLift) {
        let read = self.in_progress.iter_mut().filter(|one| one.lift.to == lift.to);
        read.for_each(|one| one.by = lift.to.tier);
    }

    /// Removes a lift that has ended.
    pub(super) fn remove(&mut self, lift: &TierLift) {
        self.in_progress.retain(|one| one.lift.to != lift.to);
    }
}
