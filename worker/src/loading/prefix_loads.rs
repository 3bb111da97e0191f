//! Prefixes that are loaded for no prompt of this worker: other workers ask for them, or an operator does.

use super::loader::Loader;
use super::loads::{Consumer, Loads, SharedLoad};
use super::prompt_loads::NewLoad;
use crate::room::has_room;
use domain::handoff::Ask;
use domain::{BlockHash, Choice, Epoch, RequestId, SeqKey, Tenant, Time};

/// The choice under which a prefix is loaded for an operator.
const OPERATOR: Choice = Choice(u16::MAX - 3);

/// What becomes of a prefix that an operator wants on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unparking {
    /// No tier has more of it than the device.
    Nothing,
    /// So many blocks are loaded, over all KV groups.
    Begun { blocks: u32 },
    /// What the device holds is in use, or the worker's own prompts need the room.
    NoRoom,
    /// As many loads are in progress as may be.
    Busy,
}

impl Loader<'_> {
    /// Begins to load what another worker asks for and tiers have beyond what the device has, if the prediction fits
    /// the time that the other worker waits and there is room now. Returns whether it is loaded. `key` stands for the
    /// asking worker among the consumers of the load.
    pub(crate) fn load_for_peer(&mut self, now: Time, key: SeqKey, ask: &Ask) -> bool {
        let chain = ask.chain.as_slice();
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        if loadable == cached {
            return false;
        }
        if self.join_prefix(now, key, chain, cached, loadable) {
            return true;
        }
        // The worker's own prompts come first.
        let room = has_room(self.kv, chain, loadable - cached, self.queued_tokens());
        let is_late = self.load_s(chain, loadable) > ask.wait.as_secs_f32();
        room && !is_late && self.begin_prefix(now, key, ask.tenant, chain, loadable)
    }

    /// Begins to load what tiers have of a tenant's prefix beyond what the device has; where there is no room for all
    /// of it, its beginning. What sequences use, and what prompts that wait need, keeps its room.
    pub(crate) fn load_for_operator(&mut self, now: Time, tenant: Tenant, chain: &[BlockHash]) -> Unparking {
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        let Some(last) = chain.last().filter(|_| loadable > cached) else { return Unparking::Nothing };
        // The same prefix has the same key: a load of it that is in progress is found, and no second one begins.
        let (digits, _) = last.0.split_first_chunk().expect("an identity is longer");
        let key = SeqKey { request: RequestId(u64::from_le_bytes(*digits)), epoch: Epoch(0), choice: OPERATOR };
        let blocks = |loader: &Self, tokens| loader.kv.sources(chain, tokens).len() as u32;
        let all = blocks(self, loadable);
        if self.join_prefix(now, key, chain, cached, loadable) {
            return Unparking::Begun { blocks: all };
        }
        let fits = self.loadable_beside(self.queued_tokens(), chain, chain, cached, loadable);
        if fits <= cached {
            return Unparking::NoRoom;
        }
        let some = blocks(self, fits);
        if self.begin_prefix(now, key, tenant, chain, fits) {
            Unparking::Begun { blocks: some }
        } else {
            Unparking::Busy
        }
    }

    /// Makes `key` a consumer of a load in progress that delivers some of what lacks of a prefix. `false`: there is
    /// none.
    fn join_prefix(&mut self, now: Time, key: SeqKey, chain: &[BlockHash], cached: u32, loadable: u32) -> bool {
        let size = self.config.layout.block_tokens;
        let shared = self.loads.find_shared(key, chain, cached / size..loadable / size);
        let Some(SharedLoad { key: load, blocks, .. }) = shared else { return false };
        self.consume(load, key, self.prefix_consumer(now, blocks, true));
        true
    }

    /// Begins to load the first `tokens` of a prefix. `false`: no further load may begin, or there is no room.
    fn begin_prefix(&mut self, now: Time, key: SeqKey, tenant: Tenant, chain: &[BlockHash], tokens: u32) -> bool {
        let load = Loads::key(key);
        if !self.loads.may_begin(load) {
            return false;
        }
        let new = NewLoad { key: load, tenant, chain, tokens, predicted_s: self.load_s(chain, tokens) };
        let Some(reads) = self.open_load(now, &new) else { return false };
        let blocks = tokens / self.config.layout.block_tokens;
        self.consume(load, key, self.prefix_consumer(now, blocks, false));
        // From the beginning: if nothing waits for the rest any more, what has arrived is of use.
        self.begin_reads(now, load, reads.into_iter());
        true
    }

    fn prefix_consumer(&self, now: Time, blocks: u32, may_have_more: bool) -> Consumer {
        let tokens = blocks * self.config.layout.block_tokens;
        Consumer { waits: false, blocks, tokens, since: now, may_have_more }
    }
}
