//! Loading: prompts whose prefix lies in tiers below the device wait for it instead of being computed, or are
//! computed towards it while it is loaded from its end on, whichever is predicted to be fastest; and blocks are
//! written as `kv-manager` wants them to be.
//!
//! What is deliberately absent: what moves the bytes, which is the crate `tiers`, and which blocks are worth
//! keeping, which is the core's.

mod ahead;
mod asked;
mod lifts;
mod loads;
mod seek;
#[cfg(test)]
mod tests;

pub(crate) use ahead::Pace;
pub(crate) use lifts::Lifts;
pub(crate) use loads::Loads;

use crate::sequence::Sequence;
use crate::sources::Source;
use crate::space::has_room;
use crate::state::WorkerState;
use ahead::Way;
use domain::{BlockHash, Choice, SeqKey, Tenant, Time};
use kv_manager::tiers::{ReadEnd, Tier, TierRead};
use loads::{Load, Want};
use scheduler::{Job, Kind};
use tiers::{TierEnd, TierHandle, TierParts};

/// The choice under which a prefix is loaded, before its prompt is computed.
const LOAD: Choice = Choice(u16::MAX - 1);
/// Loads under way at once; what one more would bring is computed.
const LOADS_MAX: usize = 256;

/// How far a prompt is that tiers may have a part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has room, and may wait for what is read.
    Waiting,
    /// It waits for a step, or was begun: it waits for nothing else.
    Queued,
}

impl WorkerState {
    /// Gives the worker a tier.
    pub(crate) fn add_tier(&mut self, parts: TierParts) {
        let TierParts { tier, mover, config, records } = parts;
        self.kv.add_tier(tier, config, &records);
        self.tiers.insert(tier, TierHandle::new(mover));
        self.meters.tiers.show(tier);
    }

    /// Begins to write what is to be written.
    pub(crate) fn write_to_tiers(&mut self) {
        while let Some(write) = self.kv.next_write() {
            self.tier(write.place.tier).write(write);
        }
    }

    /// A prompt came: tiers are asked for what nobody here knows them to have of it, and what it will need is
    /// lifted while it waits.
    pub(crate) fn look_below(&mut self, prompt: SeqKey) {
        let Some(sequence) = self.sequences.get(&prompt).filter(|_| !self.tiers.is_empty()) else { return };
        let size = self.config.layout.block_tokens;
        let chain = prefix(sequence, sequence.tokens.len() as u32, size);
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        self.kv.count_lookups(chain, cached);
        seek::seek(&mut self.tiers, prompt, &sequence.chain[(loadable / size) as usize..]);
        self.lifts.wait(prompt);
    }

    /// A prompt has room beside so many tokens of those before it. Begins to load its prefix, where tiers have
    /// more of it than the device and reading that, or a part of it, is predicted to save time; it goes on when
    /// that is there, or is computed meanwhile. `false`: not yet, for what is lifted for it has to end first.
    ///
    /// A prefix that were loaded before there is room for all of its prompt would lie in the cache until that is
    /// admitted, and be given up for the prefixes of those that come after it.
    pub(crate) fn decide_load(&mut self, now: Time, job: Job, before: u64) -> bool {
        if !self.stop_lifts(now, job.key) {
            return false;
        }
        if !self.load(now, job.key, Stage::Waiting, before + u64::from(job.tokens)) {
            self.scheduler.wait_for(job.key, Kind::Compute);
        }
        self.forget_lifts(job.key);
        true
    }

    /// Begins to load what tiers have of a prompt that waits for nothing but steps, or of a sequence that was
    /// preempted and is computed again: it comes towards that.
    pub(crate) fn load_towards(&mut self, now: Time, prompt: SeqKey) {
        let waits = self.load(now, prompt, Stage::Queued, self.queued_tokens());
        assert!(!waits, "a prompt that is queued does not wait for a load");
    }

    /// Begins to load what tiers have of a prompt, if that is worth it, beside room for so many tokens that it and
    /// others will have. Whether it waits for that.
    fn load(&mut self, now: Time, prompt: SeqKey, stage: Stage, claimed: u64) -> bool {
        let Some(sequence) = self.sequences.get(&prompt).filter(|_| !self.tiers.is_empty()) else { return false };
        let (size, tokens) = (self.config.layout.block_tokens, sequence.tokens.len() as u32);
        let chain = prefix(sequence, tokens, size);
        let cached = self.kv.cached_tokens(chain);
        let mut loadable = self.kv.loadable_tokens(chain, cached);
        let missing = loadable - cached;
        if missing == 0 {
            return false;
        }
        let coming = self.loads.coming(prompt, chain, cached / size..loadable / size);
        let (compute_s, mut load_s) = (self.rates.compute_s(cached..loadable), self.load_s(chain, loadable));
        // Until they meet, the prompt and what is loaded of it take room side by side.
        let room = has_room(&self.kv, &[], missing, claimed);
        let way = match Way::of(missing, self.config.scheduler.chunk_tokens, compute_s, load_s) {
            // What is read for another prompt is read once.
            _ if let Some((.., waits)) = coming => {
                if waits {
                    Way::Load
                } else {
                    Way::Both
                }
            }
            Way::Load | Way::Both if stage == Stage::Queued => {
                if room {
                    Way::Both
                } else {
                    Way::Compute
                }
            }
            Way::Both if !room => Way::one(compute_s, load_s),
            Way::Compute if self.rates.tries_slower() => {
                loadable = self.loadable_beside(claimed, chain, cached, loadable);
                load_s = self.load_s(chain, loadable);
                if loadable > cached { Way::Both } else { Way::Compute }
            }
            way => way,
        };
        if way == Way::Compute {
            return false;
        }
        let waits = way == Way::Load && stage == Stage::Waiting;
        let Some(sequence) = self.sequences.get_mut(&prompt) else { return false };
        let want = |blocks, follows| Want { waits, blocks, tokens: blocks * size, since: now, follows };
        if let Some((key, blocks, _)) = coming {
            sequence.loadable_tokens = blocks * size;
            self.want(key, prompt, want(blocks, true));
            return waits;
        }
        let key = Loads::key(prompt);
        if self.loads.under_way() >= LOADS_MAX || self.loads.contains(key) {
            return false;
        }
        let (tenant, chain) = (sequence.scope.tenant(), prefix(sequence, tokens, size).to_vec());
        let Some(reads) = self.begin_load(now, key, tenant, &chain, loadable, load_s) else { return false };
        self.want(key, prompt, want(loadable / size, false));
        if let Some(sequence) = self.sequences.get_mut(&prompt) {
            sequence.loadable_tokens = loadable;
        }
        // The end of the prefix first: where both are done at once, the prompt comes from the other side.
        self.read_all(now, key, reads.into_iter().rev());
        waits
    }

    /// Length in tokens of the prefix of `chain` to load beside room for so many tokens: all of the first
    /// `loadable`, or of what lacks behind the first `cached` a half, a quarter, and so on, as there is room.
    fn loadable_beside(&self, claimed: u64, chain: &[BlockHash], cached: u32, loadable: u32) -> u32 {
        let size = self.config.layout.block_tokens;
        let mut blocks = (loadable - cached) / size;
        while blocks > 0 && !has_room(&self.kv, &[], blocks * size, claimed) {
            blocks /= 2;
        }
        self.kv.loadable_tokens(&chain[..(cached / size + blocks) as usize], cached)
    }

    /// How long loading is predicted to take of what the device does not have of the first `tokens` positions of
    /// `chain`.
    pub(crate) fn load_s(&self, chain: &[BlockHash], tokens: u32) -> f32 {
        let sources = self.kv.sources(chain, tokens);
        let bytes = |tier| {
            let records = sources.iter().filter(move |(source, ..)| *source == tier);
            records.map(|(_, group, _)| self.config.layout.stored_bytes(usize::from(group.0)) as u64).sum::<u64>()
        };
        self.rates.load_s(&Tier::ALL.map(|tier| (tier, bytes(tier))))
    }

    /// Begins a load, which is predicted to take so long, and says what is to be read for it, with its bytes;
    /// `None`: there is no room for it.
    fn begin_load(
        &mut self,
        now: Time,
        key: SeqKey,
        tenant: Tenant,
        chain: &[BlockHash],
        tokens: u32,
        load_s: f32,
    ) -> Option<Vec<(TierRead, u64)>> {
        let reads = self.kv.load(key, tenant, chain, tokens)?;
        self.give_way(&reads);
        let bytes = |read: &TierRead| self.config.layout.stored_bytes(usize::from(read.block.group.0)) as u64;
        let reads: Vec<_> = reads.into_iter().map(|read| (read, bytes(&read))).collect();
        self.loads.begin(key, Load::new(chain.to_vec(), &reads, load_s, now));
        Some(reads)
    }

    /// Reads all that is to be read for a load, in this order.
    fn read_all(&mut self, now: Time, key: SeqKey, reads: impl Iterator<Item = (TierRead, u64)>) {
        for (read, bytes) in reads {
            self.rates.asked(now, read.place.tier, bytes);
            self.tier(read.place.tier).read(key, read);
        }
        self.end_load(key);
    }

    /// A move ended, or a tier did.
    pub(crate) fn tier_ended(&mut self, now: Time, end: TierEnd) {
        let reason = if let TierEnd::Off { reason, .. } = &end { reason } else { "" };
        self.rely(end.tier(), reason, |tier| tier.ended(now, &end));
        match end {
            TierEnd::Wrote { write, end, elapsed } => {
                self.kv.wrote(write.place, end);
                let bytes = self.config.layout.stored_bytes(usize::from(write.block.group.0));
                self.meters.tiers.wrote(write.place.tier, end, bytes as u64, elapsed);
            }
            TierEnd::Read { key, read, end, elapsed } => {
                let bytes = self.config.layout.stored_bytes(usize::from(read.block.group.0)) as u64;
                self.meters.tiers.read(read.place.tier, end, bytes, elapsed);
                let load = self.loads.get_mut(key).expect("a load is there until its reads have ended");
                self.kv.read_ended(&read, &load.chain, end);
                let good = end == ReadEnd::Good;
                let over = load.ended(&read, bytes, good);
                self.rates.read(now, read.place.tier, bytes, good, over);
                for (prompt, tier, since) in load.brought(read.number) {
                    if let Some(sequence) = self.sequences.get_mut(&prompt) {
                        sequence.sources.brought(read.number, Source::Tier(tier), now.since(since));
                    }
                }
                if good {
                    self.loads.came(now, key, read.place.tier);
                }
                self.end_load(key);
            }
            TierEnd::Lifted { prompt, lift, end, record, elapsed } => self.lifted(prompt, lift, end, record, elapsed),
            TierEnd::Landed { prompt, lift, there, elapsed } => self.landed(prompt, lift, there, elapsed),
            TierEnd::Settled { .. } | TierEnd::Off { .. } | TierEnd::On { .. } => {}
            TierEnd::Learned { tier, records } => self.kv.learn(tier, &records),
            TierEnd::Found { tier, prompt, records, last } => {
                self.kv.find(tier, &records);
                if last {
                    self.load_beside(now, prompt);
                }
            }
            TierEnd::Forgotten { tier, records } => self.kv.forget(tier, &records),
        }
        self.write_to_tiers();
    }

    /// A read of the load ended, or it has none: what came was cached block by block, and prompts go on that
    /// waited for it alone. After the last read the load is closed.
    fn end_load(&mut self, key: SeqKey) {
        let (served, over) = self.loads.served(key);
        if over {
            self.kv.close(key);
        }
        for (prompt, want) in served {
            if want.waits {
                // Of a prompt for which another one's load was waited for, tiers may have more.
                self.scheduler.wait_for(prompt, if want.follows { Kind::Load } else { Kind::Compute });
            }
        }
    }

    /// Prompts that have waited too long for a tier that brings nothing are computed.
    pub(crate) fn tick_loads(&mut self, now: Time) {
        while let Some((key, prompts)) = self.loads.overdue(now) {
            tracing::warn!(worker = self.config.name, request = %key.request, "a tier takes too long; the prompt is computed");
            for tier in self.loads.get_mut(key).into_iter().flat_map(|load| load.owing()).collect::<Vec<_>>() {
                let reason = "a prompt waited for it, and nothing was moved meanwhile";
                self.rely(tier, reason, |tier| tier.overdue(now));
            }
            self.tiers.values_mut().for_each(|tier| tier.cancel(key));
            prompts.into_iter().for_each(|prompt| self.scheduler.wait_for(prompt, Kind::Compute));
        }
    }

    /// A prompt needs nothing more of its load, if it has one, and of what is lifted for it.
    pub(crate) fn drop_load(&mut self, prompt: SeqKey) {
        self.forget_lifts(prompt);
        if let Some(load) = self.loads.leave(prompt) {
            self.cancel_load(load);
        }
    }

    /// A prompt wants what the load brings, and nothing of the one that it wanted before.
    fn want(&mut self, load: SeqKey, prompt: SeqKey, want: Want) {
        if let Some(sequence) = self.sequences.get(&prompt).filter(|_| want.waits) {
            let tokens = sequence.tokens.len() as u32 - want.tokens;
            self.scheduler.wait_for(prompt, Kind::Loading { tokens });
        }
        if let Some(before) = self.loads.want(load, prompt, want) {
            self.cancel_load(before);
        }
    }

    fn cancel_load(&mut self, load: SeqKey) {
        self.tiers.values_mut().for_each(|tier| tier.cancel(load));
    }

    /// A step computes positions of the prompt up to `end`.
    pub(crate) fn computes(&mut self, prompt: SeqKey, end: u32) {
        if self.loads.of(prompt).is_some_and(|want| end >= want.tokens) {
            self.drop_load(prompt);
        }
    }

    /// Something happens to a tier. If it is relied on no more, for this reason, or is again, the manager and
    /// people are told.
    fn rely(&mut self, tier: Tier, reason: &str, happens: impl FnOnce(&mut TierHandle)) {
        let handle = self.tier(tier);
        let before = handle.is_relied_on();
        happens(handle);
        let open = handle.is_relied_on();
        if open == before {
            return;
        }
        let (worker, name) = (&self.config.name, tier.name());
        if open {
            tracing::info!(worker, tier = name, "a tier is there again");
            self.kv.open_tier(tier);
        } else {
            tracing::error!(worker, tier = name, reason, "a tier is off: the service goes on without it");
            self.kv.close_tier(tier);
        }
        self.meters.tiers.open(tier, open);
        // What routers think to be there is not, or the other way round.
        self.sessions.iter_mut().for_each(|(_, session)| session.wants_snapshot = true);
    }

    fn tier(&mut self, tier: Tier) -> &mut TierHandle {
        self.tiers.get_mut(&tier).expect("the manager moves in tiers that it was given")
    }
}

/// The identities of what a prompt of so many tokens can have from a cache. The last token is computed in any case: the
/// first one that is sampled depends on it.
fn prefix(sequence: &Sequence, tokens: u32, block_tokens: u32) -> &[BlockHash] {
    let blocks = (tokens.saturating_sub(1) / block_tokens) as usize;
    &sequence.chain[..blocks.min(sequence.chain.len())]
}
