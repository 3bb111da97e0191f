//! Blocks of prompts that no index of this worker has, though other workers may have written them to the store. The
//! store is asked while the prompt is computed, and what it has is loaded towards the prompt.

use super::loader::Loader;
use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::Tier;
use scheduler::Kind;
use std::collections::BTreeMap;
use tiers::TierHandle;

/// Looks for these blocks of a prompt in the store, if there is one.
pub(super) fn look_up(tiers: &mut BTreeMap<Tier, TierHandle>, prompt: SeqKey, unknown: &[BlockHash]) {
    if let Some(store) = tiers.get_mut(&Tier::Object).filter(|_| !unknown.is_empty()) {
        store.look_up(prompt, unknown);
    }
}

impl Loader<'_> {
    /// Loads what was found towards a prompt that is not computed yet. A prompt that waits for room, or for a load,
    /// gets the chance when it has that.
    pub(super) fn on_lookup_ended(&mut self, now: Time, prompt: SeqKey) {
        match self.scheduler.waits_for(prompt) {
            Some(Kind::Load | Kind::TakeOver) => {}
            Some(Kind::Loading { .. }) => self.loads.expect_more(prompt),
            Some(Kind::Compute) => self.load_towards(now, prompt),
            None if self.scheduler.contains(prompt) && !self.scheduler.decodes(prompt) => {
                self.load_towards(now, prompt)
            }
            None => {}
        }
    }
}
