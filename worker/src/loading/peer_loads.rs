//! Prefixes that other workers ask for. What tiers have of them is loaded before it is offered, if it arrives in time.

use super::loader::Loader;
use super::loads::{Consumer, Loads, SharedLoad};
use super::prompt_loads::NewLoad;
use domain::handoff::Ask;
use domain::{SeqKey, Time};

impl Loader<'_> {
    /// Begins to load what another worker asks for and tiers have beyond what the device has, if the prediction fits
    /// the time that the other worker waits and there is room now. Returns whether it is loaded. `key` stands for the
    /// asking worker among the consumers of the load.
    pub(crate) fn load_for_peer(&mut self, now: Time, key: SeqKey, ask: &Ask) -> bool {
        let (size, chain) = (self.config.layout.block_tokens, ask.chain.as_slice());
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        if loadable == cached {
            return false;
        }
        let consumer = |blocks, may_have_more| {
            let tokens = blocks * size;
            Consumer { waits: false, blocks, tokens, since: now, may_have_more }
        };
        if let Some(SharedLoad { key: load, blocks, .. }) =
            self.loads.find_shared(key, chain, cached / size..loadable / size)
        {
            self.consume(load, key, consumer(blocks, true));
            return true;
        }
        let predicted_s = self.load_s(chain, loadable);
        let load = Loads::key(key);
        // The worker's own prompts come first.
        let room = self.kv.has_room(chain, loadable - cached, self.queued());
        if predicted_s > ask.wait.as_secs_f32() || !room || !self.loads.may_begin(load) {
            return false;
        }
        let new = NewLoad { key: load, tenant: ask.tenant, chain, tokens: loadable, predicted_s };
        let Some(reads) = self.open_load(now, &new) else { return false };
        self.consume(load, key, consumer(loadable / size, false));
        // From the beginning: if the other worker stops waiting, what has arrived is of use.
        self.begin_reads(now, load, reads.into_iter());
        true
    }
}
