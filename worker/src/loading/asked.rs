//! Prefixes that other workers ask for: what tiers have of them is loaded before it is offered, if that is there
//! in time.

use super::LOADS_MAX;
use super::loads::{Loads, Want};
use crate::state::WorkerState;
use domain::handoff::Ask;
use domain::{SeqKey, Time};

impl WorkerState {
    /// Begins to load what another worker asks for and tiers have of it beyond what the device has, in the name of
    /// `key`, if that is predicted to be worth waiting for and there is room for it now. Whether it comes; it is
    /// what `key` wants until it came.
    pub(crate) fn load_asked(&mut self, now: Time, key: SeqKey, ask: &Ask) -> bool {
        let (size, chain) = (self.config.layout.block_tokens, ask.chain.as_slice());
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        if loadable == cached {
            return false;
        }
        let want = |blocks, follows| Want { waits: false, blocks, tokens: blocks * size, since: now, follows };
        if let Some((load, blocks, _)) = self.loads.coming(key, chain, cached / size..loadable / size) {
            self.want(load, key, want(blocks, true));
            return true;
        }
        let load_s = self.load_s(chain, loadable);
        let load = Loads::key(key);
        if load_s > ask.wait.as_secs_f32()
            // Own prompts come first.
            || !self.has_room_beside(chain, loadable - cached)
            || self.loads.under_way() >= LOADS_MAX
            || self.loads.contains(load)
        {
            return false;
        }
        let Some(reads) = self.begin_load(now, load, ask.tenant, chain, loadable, load_s) else { return false };
        self.want(load, key, want(loadable / size, false));
        // The beginning first: what has come when the asker's time is over is of use.
        self.read_all(now, load, reads.into_iter());
        true
    }

    /// Whether something is being loaded that is wanted in this name.
    pub(crate) fn is_loading(&self, key: SeqKey) -> bool {
        self.loads.of(key).is_some()
    }
}
