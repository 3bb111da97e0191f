//! Prompts whose blocks nobody here knows of, though others may have written them: they are looked for beside the
//! prompt's computation, and what is found is loaded towards it.

use crate::state::WorkerState;
use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::Tier;
use scheduler::Kind;
use std::collections::BTreeMap;
use tiers::TierHandle;

/// A prompt comes, and nobody knows of these blocks of it: they are looked for in the store, if there is one.
pub(super) fn seek(tiers: &mut BTreeMap<Tier, TierHandle>, prompt: SeqKey, unknown: &[BlockHash]) {
    if let Some(store) = tiers.get_mut(&Tier::Object).filter(|_| !unknown.is_empty()) {
        store.seek(prompt, unknown);
    }
}

impl WorkerState {
    /// All that was looked for was found, or was not. If the prompt is still to be computed, or some of it, what
    /// there is of that is loaded towards it; a prompt that waits for room, or for a load, is looked at anew when
    /// it has that.
    pub(super) fn load_beside(&mut self, now: Time, prompt: SeqKey) {
        match self.scheduler.waits_for(prompt) {
            Some(Kind::Load | Kind::TakeOver) => {}
            Some(Kind::Loading { .. }) => self.loads.look_again(prompt),
            Some(Kind::Compute) => self.load_towards(now, prompt),
            None if self.scheduler.contains(prompt) && !self.scheduler.decodes(prompt) => {
                self.load_towards(now, prompt)
            }
            None => {}
        }
    }
}
