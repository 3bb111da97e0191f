//! Loads of prompts: they begin, prompts join them, and prompts continue when their part has arrived.

use super::loader::{Loader, cacheable};
use super::loads::{Consumer, Load, Loads, SharedLoad};
use super::policy::{ComputeReason, LoadOutlook, LoadPlan, Loading, Stage, plan_load};
use super::store_lookup::look_up;
use domain::{BlockHash, Claim, SeqKey, Tenant, Time};
use kv_manager::tiers::TierRead;
use scheduler::{Job, Kind};
use std::ops::ControlFlow;

/// A load that is to begin.
pub(super) struct NewLoad<'a> {
    pub(super) key: SeqKey,
    pub(super) tenant: Tenant,
    pub(super) chain: &'a [BlockHash],
    /// Length of the prefix to load, in tokens.
    pub(super) tokens: u32,
    /// How long it will take, as predicted.
    pub(super) predicted_s: f32,
}

impl Loader<'_> {
    /// Prepares for a prompt that was queued: looks for its unknown blocks in the store, and has what it will need
    /// lifted while it waits.
    pub(crate) fn on_prompt_queued(&mut self, prompt: SeqKey) {
        let Some(sequence) = self.sequences.get(&prompt).filter(|_| !self.tiers.is_empty()) else { return };
        let size = self.config.layout.block_tokens;
        let chain = cacheable(&sequence.chain, sequence.tokens.len() as u32, size);
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        self.kv.count_lookups(chain, cached);
        look_up(self.tiers, prompt, &sequence.chain[(loadable / size) as usize..]);
        self.lifts.enqueue(prompt);
    }

    /// Decides about a prompt that has room next to `before`, that of earlier jobs. If a load is predicted to save
    /// time, the load begins, and the prompt continues when its part has arrived, or is computed meanwhile. `Break`:
    /// not yet, because lifts for this prompt have to end first.
    ///
    /// A prefix that is loaded before its whole prompt has room would lie in the cache until the prompt is admitted,
    /// and be evicted for prefixes of later prompts.
    pub(crate) fn decide_load(&mut self, now: Time, job: Job, before: Claim) -> ControlFlow<()> {
        self.stop_lifts(now, job.key)?;
        match self.load(now, job.key, Stage::Waiting, before.with_job(job.tokens.into())) {
            Loading::QueueNow => self.scheduler.wait_for(job.key, Kind::Compute),
            Loading::Wait => {}
        }
        self.forget_lifts(job.key);
        ControlFlow::Continue(())
    }

    /// Begins to load what tiers have of a prompt that waits for nothing but steps, or of a sequence that was
    /// preempted and is computed again. It is computed towards its load.
    pub(crate) fn load_towards(&mut self, now: Time, prompt: SeqKey) {
        let loading = self.load(now, prompt, Stage::Queued, self.queued());
        assert_eq!(loading, Loading::QueueNow, "a prompt that is queued does not wait for a load");
    }

    /// Plans a prompt's load and does what the plan says. `claimed`: the room that the prompt and earlier jobs take.
    /// Returns what the prompt does meanwhile.
    fn load(&mut self, now: Time, prompt: SeqKey, stage: Stage, claimed: Claim) -> Loading {
        let Some(sequence) = self.sequences.get(&prompt).filter(|_| !self.tiers.is_empty()) else {
            return Loading::QueueNow;
        };
        let size = self.config.layout.block_tokens;
        let (tokens, tenant, chain) = (sequence.tokens.len() as u32, sequence.scope.tenant(), sequence.chain.clone());
        let chain = cacheable(&chain, tokens, size);
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        if loadable == cached {
            return Loading::QueueNow;
        }
        let load_s = self.load_s(chain, loadable);
        let outlook = LoadOutlook {
            stage,
            missing_tokens: loadable - cached,
            chunk_tokens: self.config.scheduler.chunk_tokens,
            compute_s: self.rates.compute_s(cached..loadable),
            load_s,
            has_room: self.kv.has_room(&[], loadable - cached, claimed),
            shared: self.loads.find_shared(prompt, chain, cached / size..loadable / size),
            may_begin: self.loads.may_begin(Loads::key(prompt)),
            probe_is_pending: self.rates.probe_is_pending(),
        };
        let plan = plan_load(&outlook);
        if matches!(plan, LoadPlan::Probe | LoadPlan::Compute(ComputeReason::Faster)) {
            self.rates.count_slower_tiers();
        }
        let new = NewLoad { key: Loads::key(prompt), tenant, chain, tokens: loadable, predicted_s: load_s };
        match plan {
            LoadPlan::Compute(_) => Loading::QueueNow,
            LoadPlan::Join(shared, loading) => self.join_load(now, prompt, shared, loading),
            LoadPlan::Begin(loading) => self.begin_load(now, prompt, &new, loading),
            LoadPlan::Probe => match self.loadable_beside(claimed, &[], chain, cached, loadable) {
                tokens if tokens > cached => {
                    let probe = NewLoad { tokens, predicted_s: self.load_s(chain, tokens), ..new };
                    self.begin_load(now, prompt, &probe, Loading::QueueNow)
                }
                _ => Loading::QueueNow,
            },
        }
    }

    /// Makes a prompt share a load in progress. Returns what the prompt does meanwhile.
    fn join_load(&mut self, now: Time, prompt: SeqKey, shared: SharedLoad, loading: Loading) -> Loading {
        let SharedLoad { key, blocks, .. } = shared;
        self.consume(key, prompt, self.consumer(now, blocks, true, loading));
        loading
    }

    /// Begins a load for a prompt, if there is room for it. Returns what the prompt does meanwhile.
    fn begin_load(&mut self, now: Time, prompt: SeqKey, new: &NewLoad<'_>, loading: Loading) -> Loading {
        let Some(reads) = self.open_load(now, new) else { return Loading::QueueNow };
        let blocks = new.tokens / self.config.layout.block_tokens;
        self.consume(new.key, prompt, self.consumer(now, blocks, false, loading));
        // From the end of the prefix: a prompt that is computed meanwhile comes from its beginning.
        self.begin_reads(now, new.key, reads.into_iter().rev());
        loading
    }

    /// Describes a consumer of the first `blocks` of a load.
    fn consumer(&self, now: Time, blocks: u32, may_have_more: bool, loading: Loading) -> Consumer {
        let tokens = blocks * self.config.layout.block_tokens;
        Consumer { waits: loading == Loading::Wait, blocks, tokens, since: now, may_have_more }
    }

    /// Returns the length in tokens of the prefix of `chain` for which a load has room in addition to what is
    /// `claimed`, and to what is cached of `kept`: the first `loadable`, or a half, a quarter and so on of what lacks
    /// behind the first `cached`.
    pub(super) fn loadable_beside(
        &self,
        claimed: Claim,
        kept: &[BlockHash],
        chain: &[BlockHash],
        cached: u32,
        loadable: u32,
    ) -> u32 {
        let size = self.config.layout.block_tokens;
        let mut blocks = (loadable - cached) / size;
        while blocks > 0 && !self.kv.has_room(kept, blocks * size, claimed) {
            blocks /= 2;
        }
        self.kv.loadable_tokens(&chain[..(cached / size + blocks) as usize], cached)
    }

    /// Takes blocks for a load and returns what it has to read, with the bytes of each read. `None`: there is no room.
    pub(super) fn open_load(&mut self, now: Time, new: &NewLoad<'_>) -> Option<Vec<(TierRead, u64)>> {
        let &NewLoad { key, tenant, chain, tokens, predicted_s } = new;
        let reads = self.kv.load(key, tenant, chain, tokens)?;
        self.cancel_doubled_lifts(&reads);
        let reads: Vec<_> = reads.into_iter().map(|read| (read, self.record_bytes(read.block.group))).collect();
        self.loads.begin(key, Load::new(chain.to_vec(), &reads, predicted_s, now));
        Some(reads)
    }

    /// Begins all reads of a load, in this order.
    pub(super) fn begin_reads(&mut self, now: Time, key: SeqKey, reads: impl Iterator<Item = (TierRead, u64)>) {
        for (read, bytes) in reads {
            self.rates.note_requested(now, read.place.tier, bytes);
            self.tier(read.place.tier).read(key, read);
        }
        self.settle_load(key);
    }

    /// Lets prompts continue that wait for nothing more of a load: one of its reads has ended, or it has none. After
    /// the last read the load is closed.
    pub(super) fn settle_load(&mut self, key: SeqKey) {
        let (satisfied, is_over) = self.loads.take_satisfied(key);
        if is_over {
            self.kv.close(key);
        }
        for (prompt, consumer) in satisfied.into_iter().filter(|(_, consumer)| consumer.waits) {
            // A prompt that shared another one's load may find more of its own prefix in tiers.
            self.scheduler.wait_for(prompt, if consumer.may_have_more { Kind::Load } else { Kind::Compute });
        }
    }

    /// Gives up loads for which a tier has delivered nothing for too long. Their prompts are computed.
    pub(crate) fn drop_overdue_loads(&mut self, now: Time) {
        while let Some((key, prompts)) = self.loads.take_overdue(now) {
            let (worker, request) = (&self.config.name, key.request);
            tracing::warn!(worker, %request, "a tier takes too long; the prompt is computed");
            for tier in self.loads.get_mut(key).into_iter().flat_map(|load| load.pending_tiers()).collect::<Vec<_>>() {
                let reason = "a prompt waited for it, and nothing was moved meanwhile";
                self.update_availability(tier, reason, |tier| tier.overdue(now));
            }
            self.cancel_moves(key);
            prompts.into_iter().for_each(|prompt| self.scheduler.wait_for(prompt, Kind::Compute));
        }
    }

    /// Ends a prompt's share in its load, if it has one, and the lifts for it.
    pub(crate) fn drop_load(&mut self, prompt: SeqKey) {
        self.forget_lifts(prompt);
        if let Some(load) = self.loads.leave(prompt) {
            self.cancel_moves(load);
        }
    }

    /// Makes a prompt a consumer of a load, and of no other one.
    pub(super) fn consume(&mut self, load: SeqKey, prompt: SeqKey, consumer: Consumer) {
        if let Some(sequence) = self.sequences.get_mut(&prompt) {
            sequence.loadable_tokens = consumer.tokens;
            if consumer.waits {
                let tokens = sequence.tokens.len() as u32 - consumer.tokens;
                self.scheduler.wait_for(prompt, Kind::Loading { tokens });
            }
        }
        if let Some(before) = self.loads.join(load, prompt, consumer) {
            self.cancel_moves(before);
        }
    }

    /// Ends a prompt's share in its load if a step computes the prompt up to `end`, behind the load.
    pub(crate) fn on_step_planned(&mut self, prompt: SeqKey, end: u32) {
        if self.loads.consumer(prompt).is_some_and(|consumer| end >= consumer.tokens) {
            self.drop_load(prompt);
        }
    }
}
