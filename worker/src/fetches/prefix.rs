//! Prefixes that other workers hold: the beginning of a prompt is fetched before the prompt is queued, which then
//! finds it in the cache. Whatever goes wrong, the prompt is computed as if nobody had been asked.
//!
//! A prefix comes by the machine of handoffs, with the same validation. It is deliberately not waited for like a
//! handoff: it gets room at once, beside all who wait for some, or not at all, and is not waited for longer than
//! [`PREFIX_WAIT_MAX`].

use super::entry::{Entry, FetchKind};
use super::{AttemptId, Fetches, config};
use crate::config::{PREFIX_WAIT_MAX, PREFIXES_MAX};
use crate::state::{WorkerState, shares_prompt};
use domain::handoff::{Ask, PeerBody};
use domain::session::Holder;
use domain::{BlockHash, Epoch, RequestId, SeqKey, Tenant, Time, WorkerId};
use kv_manager::{Admit, Fetch, FetchEvent};
use std::time::Duration;
use telemetry::metrics::{self as declared, PrefixResult};

impl Fetches {
    /// Queues the prompt of an open attempt; where another worker is said to hold more of it than this one, once
    /// that was fetched, or was not.
    pub fn queue(&mut self, core: &mut WorkerState, now: Time, request: RequestId, epoch: Epoch) {
        if !self.ask(core, now, request, epoch) {
            core.queue(request, epoch);
        }
    }

    /// Asks the holder that the attempt names; `false`: there is none, or nothing to be had from it.
    fn ask(&mut self, core: &mut WorkerState, now: Time, request: RequestId, epoch: Epoch) -> bool {
        let Some(attempt) = core.attempt(request, epoch) else { return false };
        let present = |holder: &Holder| core.lives.of(holder.worker) == Some(holder.incarnation);
        let Some(holder) = attempt.submit.holder.filter(present) else { return false };
        let under_way = self.open.values().filter(|entry| entry.kind == FetchKind::Prefix).count();
        if under_way == PREFIXES_MAX || !shares_prompt(&attempt.submit) {
            return false;
        }
        let (submit, deadline) = (attempt.submit.clone(), attempt.deadline);
        let tenant = Tenant::named(&submit.tenant);
        let key = core.expect(now, &submit);
        let Some((chain, worth)) = wanted(core, key, holder) else {
            core.close(key);
            return false;
        };
        // The attempt's other worker waits for its offer meanwhile.
        let wait_max = PREFIX_WAIT_MAX.min(core.config.handoff_wait / 2);
        // The holder is to answer before it is not listened to any more, and what it offers is still to be read.
        let wait_max_there = wait_max.min(core.config.answer_wait) / 2;
        let wait = Duration::try_from_secs_f32(worth).map_or(wait_max_there, |worth| worth.min(wait_max_there));
        // It bounds the fetch as a deadline does, so a pause of this worker counts: the prompt is computed then.
        let machine = Fetch::ask(now, config(core, wait_max), deadline.min(now + wait_max));
        let id = (request, epoch);
        let asked = chain.len() as u32 * core.config.layout.block_tokens;
        self.open.insert(id, Entry { asked, ..Entry::new(machine, key, holder.worker, FetchKind::Prefix, 0) });
        self.note_deadline(id);
        let (worker, blocks, of) = (&core.config.name, chain.len(), holder.worker);
        tracing::trace!(target: "timeline", worker, %request, %of, blocks, "prefix asked for");
        core.send(holder.worker, PeerBody::Ask(Ask { request, epoch, lease: submit.lease, wait, tenant, chain }));
        true
    }

    /// The holder has nothing to offer.
    pub(super) fn on_decline(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, id: AttemptId) {
        match self.open.get(&id) {
            Some(entry) if entry.kind == FetchKind::Prefix && entry.owner == from && entry.tokens.is_none() => {
                self.give_up(core, now, id, PrefixResult::Refused);
            }
            _ => core.meters.stale_lease.increment(1),
        }
    }

    /// The holder of some prefixes is gone: nobody waits for its word.
    pub(super) fn holder_lost(&mut self, core: &mut WorkerState, now: Time, holder: WorkerId) {
        let of_it = |entry: &Entry| entry.kind == FetchKind::Prefix && entry.owner == holder;
        let lost: Vec<_> = self.open.iter().filter(|(_, entry)| of_it(entry)).map(|(&id, _)| id).collect();
        lost.into_iter().for_each(|id| self.event(core, now, id, FetchEvent::OwnerLost));
    }

    /// Queues the prompt: its prefix came, or did not.
    pub(super) fn prefix_done(&mut self, core: &mut WorkerState, id: AttemptId) {
        let Some(entry) = self.open.get_mut(&id) else { return };
        let (key, came) = (entry.key, entry.came.take());
        self.forget(core, id);
        core.close(key);
        core.queue(id.0, id.1);
        if let Some((blocks, took)) = came {
            core.brought(key, blocks, took);
        }
    }

    /// Does without the prefix.
    pub(super) fn give_up(&mut self, core: &mut WorkerState, now: Time, id: AttemptId, result: PrefixResult) {
        if let Some(entry) = self.open.get(&id) {
            entry.count(core, result);
            self.event(core, now, id, FetchEvent::Cancel);
        }
    }
}

impl Entry {
    /// Room for the prefix, if it is there now, beside that of all who wait for some.
    pub(super) fn prefix_room(&mut self, core: &mut WorkerState, tokens: u32) -> FetchEvent {
        let Some(sequence) = core.sequences.get(&self.key) else { return FetchEvent::Cancel };
        let (tenant, chain) = (sequence.scope.tenant(), &sequence.chain);
        let missing = tokens.saturating_sub(core.kv.cached_tokens(chain));
        let room = core.has_room_beside(chain, missing);
        if room && let Admit::Ready { cached_tokens } = core.kv.open(self.key, tenant, chain, tokens, 0) {
            self.held = cached_tokens;
            FetchEvent::Room { tables: core.kv.tables(self.key), held_tokens: cached_tokens }
        } else {
            self.count(core, PrefixResult::Failed);
            FetchEvent::Cancel
        }
    }

    /// The prefix is validated: it is cached from now on.
    pub(super) fn prefix_came(&mut self, core: &mut WorkerState, now: Time) {
        if let Some((sequence, tokens)) = core.sequences.get(&self.key).zip(self.tokens) {
            let size = core.config.layout.block_tokens;
            self.came = Some((self.held / size..tokens / size, now.since(sequence.arrived)));
            core.kv.written(self.key, tokens, &sequence.chain);
        }
        core.kv.close(self.key);
        self.count(core, PrefixResult::Fetched);
    }

    /// Counts the tokens that came, or did not.
    pub(super) fn count(&self, core: &WorkerState, result: PrefixResult) {
        let tokens = self.tokens.unwrap_or(self.asked).saturating_sub(self.held);
        declared::prefix_fetch_tokens(core.config.id, result).increment(u64::from(tokens));
    }
}

/// Identities of what the holder is said to have of a prompt, if the device here does not have as much and it is
/// not faster to load what tiers here have of that, and compute what they have not; and for how many seconds it is
/// worth waiting for what the holder may have to load itself.
fn wanted(core: &WorkerState, key: SeqKey, holder: Holder) -> Option<(Vec<BlockHash>, f32)> {
    let layout = &core.config.layout;
    let sequence = core.sequences.get(&key)?;
    // The last token is computed in any case: the first one that is sampled depends on it.
    let blocks = (holder.tokens / layout.block_tokens).min((sequence.tokens.len() as u32 - 1) / layout.block_tokens);
    let (chain, asked) = (&sequence.chain[..blocks as usize], blocks * layout.block_tokens);
    let cached = core.kv.cached_tokens(chain);
    if cached >= asked {
        return None;
    }
    let here = core.kv.loadable_tokens(chain, cached);
    let fetch_s = core.rates.fetch_s(u64::from(asked - cached) * layout.token_bytes() as u64);
    let load_s = core.load_s(chain, here).min(core.rates.compute_s(cached..here));
    let own_s = load_s + core.rates.compute_s(here..asked);
    // Where nothing is to be loaded here, the router has compared already.
    (here == cached || fetch_s < own_s).then(|| (chain.to_vec(), (own_s - fetch_s).max(0.0)))
}

/// Returns whether an offer of so many tokens can be the beginning of a prompt of `known`, the last of which is
/// computed in any case.
pub(super) fn fits(core: &WorkerState, tokens: u32, known: u32) -> bool {
    (1..known).contains(&tokens) && tokens.is_multiple_of(core.config.layout.block_tokens)
}
