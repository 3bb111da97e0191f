//! The owner's side of handoffs: offers, what is written, completes, and the answers to releases; and offers of
//! cached blocks to those who ask for them, once what tiers have of them is on the device too.

#[cfg(feature = "explore")]
mod explore;

use crate::config::{ASKED_MAX, PREFIX_WAIT_MAX};
use crate::sequence::PROMPT;
use crate::sessions::SessionId;
use crate::state::WorkerState;
use domain::handoff::{Ask, Offer, PeerBody};
use domain::planted_bugs::{self, Bug};
use domain::session::{Assignment, Failure, FromWorker};
use domain::{Choice, Epoch, LeaseId, RequestId, SeqKey, StepId, Tenant, Time, Token, WorkerId};
use kv_manager::{Admit, OfferParts};
use std::collections::BTreeMap;
use std::time::Duration;

/// The choice under which cached blocks are held while a lease on them is given.
const ASKED: Choice = Choice(u16::MAX - 2);

/// Offers of sequences that are being computed, and the leases of those that were completed.
#[derive(Default)]
pub struct Offers {
    open: BTreeMap<SeqKey, Open>,
    /// Readers of the leases that are alive.
    readers: BTreeMap<LeaseId, Reader>,
    /// Those whose answer waits for a load, by what that is wanted as.
    asked: BTreeMap<SeqKey, Asked>,
}

/// Who takes a sequence over, and as what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker {
    /// The reader.
    pub(crate) to: WorkerId,
    /// The attempt that it takes over under.
    pub(crate) epoch: Epoch,
    /// How long the lease lives without renewal.
    pub(crate) lease: Duration,
    /// Positions that are handed over.
    pub(crate) tokens: u32,
    /// Output tokens that it knows.
    pub(crate) known: u32,
}

/// Who reads under a lease.
#[derive(Clone, Copy, Debug)]
struct Reader {
    worker: WorkerId,
    /// What it takes over, and the session that waits for that. `None`: it asked for what is cached.
    handoff: Option<(SessionId, SeqKey)>,
}

/// Somebody who asked for blocks.
struct Asked {
    from: WorkerId,
    ask: Ask,
    /// Then what has come is offered.
    until: Time,
}

struct Open {
    lease: LeaseId,
    taker: Taker,
    /// Positions below this were announced as written.
    announced: u32,
}

impl Offers {
    /// Offers a sequence, whose blocks for all of `taker.tokens` positions are there; `false` if there are too
    /// many leases, or its own KV is not validated yet.
    pub(crate) fn begin(&mut self, core: &mut WorkerState, now: Time, key: SeqKey, taker: Taker) -> bool {
        let Taker { to, epoch, lease: duration, tokens, .. } = taker;
        let Some(attempt) = core.attempt(key.request, key.epoch) else { return false };
        let (session, until) = (attempt.session, attempt.deadline.min(now + core.config.offer_max));
        let Some(parts) = core.kv.offer(now, key, tokens, duration, until) else { return false };
        self.open.insert(key, Open { lease: parts.lease, taker, announced: parts.ready });
        self.readers.insert(parts.lease, Reader { worker: to, handoff: Some((session, key)) });
        let (worker, request, lease) = (&core.config.name, key.request, parts.lease);
        tracing::trace!(target: "timeline", worker, %request, %lease, tokens, ready = parts.ready, "offered");
        if let Some(timed) = core.attempts.timed(key.request, key.epoch) {
            timed.event(now, "offered");
        }
        let offer = Offer {
            request: key.request,
            epoch,
            lease: parts.lease,
            duration,
            layout: core.config.layout.fingerprint(),
            tokens,
            ready: parts.ready,
            groups: parts.groups,
        };
        core.send(to, PeerBody::Offer(offer));
        true
    }

    /// A reader waits for an offer, and should wait on if its prompt is here and has not been offered yet.
    fn expected(&mut self, core: &mut WorkerState, from: WorkerId, request: RequestId, epoch: Epoch) {
        let part = core.attempt(request, epoch).map(|attempt| attempt.submit.assignment);
        let offered = self.open.contains_key(&SeqKey { request, epoch, choice: PROMPT });
        if part == Some(Assignment::Prefill { decode: from }) && !offered {
            core.send(from, PeerBody::Queued { request, epoch });
        }
    }

    /// Offers a prefix, at once or when what tiers have of it is loaded.
    fn asked(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, ask: &Ask) {
        let key = SeqKey { request: ask.request, epoch: ask.epoch, choice: ASKED };
        match self.asked.get(&key) {
            // Who asks twice gets the one answer that is to come.
            Some(asked) if asked.from == from => {}
            None if self.asked.len() < ASKED_MAX && core.loader().load_for_peer(now, key, ask) => {
                let (worker, request) = (&core.config.name, ask.request);
                tracing::trace!(target: "timeline", worker, %request, to = %from, "prefix loaded for another worker");
                let until = now + ask.wait.min(PREFIX_WAIT_MAX);
                self.asked.insert(key, Asked { from, ask: ask.clone(), until });
            }
            _ => self.offer_cached(core, now, from, ask),
        }
    }

    /// Offers to those whose prefixes were loaded, or who do not wait any longer.
    fn offer_loaded(&mut self, core: &mut WorkerState, now: Time) {
        let is_due = |key: &SeqKey, asked: &mut Asked| asked.until <= now || !core.loads.is_loading(*key);
        for (key, Asked { from, ask, .. }) in self.asked.extract_if(.., is_due).collect::<Vec<_>>() {
            core.loader().drop_load(key);
            self.offer_cached(core, now, from, &ask);
        }
    }

    /// Offers what is cached of a prefix, or declines: jobs wait for room, and there is not enough beside it. The
    /// lease keeps its blocks, which could have been evicted for those jobs.
    fn offer_cached(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, ask: &Ask) {
        let &Ask { request, epoch, lease: duration, ref chain, .. } = ask;
        let key = SeqKey { request, epoch, choice: ASKED };
        let tokens = core.kv.cached_tokens(chain);
        let chain = &chain[..(tokens / core.config.layout.block_tokens) as usize];
        let room = core.queued().is_none() || core.has_room_beside(chain, 0);
        let opened = tokens > 0 && room && core.kv.open(key, Tenant::UNKNOWN, chain, tokens, 0) != Admit::NoRoom;
        let parts = opened.then(|| core.kv.offer(now, key, tokens, duration, now + core.config.offer_max)).flatten();
        core.kv.close(key);
        let Some(OfferParts { lease, ready, groups }) = parts else {
            return core.send(from, PeerBody::Decline { request, epoch });
        };
        if planted_bugs::is(Bug::CachedBlocksUnheld) {
            core.kv.release(now, lease);
        } else {
            self.readers.insert(lease, Reader { worker: from, handoff: None });
        }
        let worker = &core.config.name;
        tracing::trace!(target: "timeline", worker, %request, %lease, tokens, "prefix offered");
        let layout = core.config.layout.fingerprint();
        core.send(from, PeerBody::Offer(Offer { request, epoch, lease, duration, layout, tokens, ready, groups }));
    }

    /// Step `step` is about to write the positions of `key` below `tokens`. Said where it finishes a block or the
    /// offer: a part of a block is not read.
    pub(crate) fn writes(&mut self, core: &mut WorkerState, step: StepId, key: SeqKey, tokens: u32) {
        let size = core.config.layout.block_tokens;
        if let Some(open) = self.open.get_mut(&key)
            && let tokens = tokens.min(open.taker.tokens)
            && tokens > open.announced
            && (tokens == open.taker.tokens || tokens / size > open.announced / size)
        {
            open.announced = tokens;
            let (lease, to) = (open.lease, open.taker.to);
            core.send(to, PeerBody::Written { lease, step, tokens });
        }
    }

    /// Returns what is offered of a sequence.
    pub(crate) fn taker(&self, key: SeqKey) -> Option<Taker> {
        self.open.get(&key).map(|open| open.taker)
    }

    /// The sequence is computed as far as it was offered; the reader goes on from `first`, and was not told of the
    /// output tokens `missing`.
    pub(crate) fn complete(
        &mut self,
        core: &mut WorkerState,
        key: SeqKey,
        missing: Vec<Token>,
        first: Vec<(Choice, Token)>,
    ) {
        if let Some(open) = self.open.remove(&key) {
            let (worker, request) = (&core.config.name, key.request);
            tracing::trace!(target: "timeline", worker, %request, "complete sent");
            core.send(open.taker.to, PeerBody::Complete { lease: open.lease, missing, first });
        }
    }

    /// None of the attempt's sequences will be completed.
    pub(crate) fn withdraw_all(&mut self, core: &mut WorkerState, request: RequestId, epoch: Epoch) {
        let first = SeqKey { request, epoch, choice: Choice(0) };
        let last = SeqKey { choice: Choice(u16::MAX), ..first };
        let keys: Vec<SeqKey> = self.open.range(first..=last).map(|(&key, _)| key).collect();
        keys.into_iter().for_each(|key| self.withdraw(core, key));
    }

    /// The sequence will not be completed.
    pub(crate) fn withdraw(&mut self, core: &mut WorkerState, key: SeqKey) {
        if let Some(open) = self.open.remove(&key) {
            core.kv.withdraw(open.lease);
            // Its reader will release it, if it ever heard of it and its release arrives: neither is certain.
            self.readers.remove(&open.lease);
            core.send(open.taker.to, PeerBody::Withdraw { lease: open.lease });
        }
    }

    /// The sequences that are offered and not complete.
    pub fn open(&self) -> impl Iterator<Item = SeqKey> {
        self.open.keys().copied()
    }

    /// Entries of every list, by name: nothing is left of an offer whose lease is over.
    pub fn sizes(&self) -> [(&'static str, usize); 3] {
        let asked = ("asks that wait for loads", self.asked.len());
        [("offers", self.open.len()), ("readers of leases", self.readers.len()), asked]
    }

    /// Handles a reader's message; `false` if it is none.
    pub(crate) fn handle(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, body: &PeerBody) -> bool {
        if let PeerBody::Renew { lease, .. } | PeerBody::Release { lease } | PeerBody::ReleaseAck { lease } = *body
            && self.readers.get(&lease).is_some_and(|reader| reader.worker != from)
        {
            tracing::warn!(worker = core.config.name, %lease, %from, "a message about another reader's lease is refused");
            return true;
        }
        match *body {
            PeerBody::Ask(ref ask) => self.asked(core, now, from, ask),
            PeerBody::Expect { request, epoch } => self.expected(core, from, request, epoch),
            PeerBody::Renew { lease, ticks } => {
                // Its reader reads for nothing, unless its release was faster than what it said before.
                let is_over = !core.kv.renew(now, lease, ticks) && !core.kv.was_valid(lease);
                if is_over && !planted_bugs::is(Bug::RenewalUnanswered) {
                    tracing::trace!(target: "timeline", worker = core.config.name, %lease, "renewal refused");
                    core.send(from, PeerBody::Released { lease, valid: false });
                }
            }
            PeerBody::Release { lease } => {
                let valid = core.kv.release(now, lease);
                self.readers.remove(&lease);
                tracing::trace!(target: "timeline", worker = core.config.name, %lease, valid, "release answered");
                core.send(from, PeerBody::Released { lease, valid });
            }
            PeerBody::ReleaseAck { lease } => {
                core.kv.ack(lease);
            }
            _ => return false,
        }
        true
    }

    /// Ends leases whose time has passed, and offers what was loaded.
    pub(crate) fn tick(&mut self, core: &mut WorkerState, now: Time) {
        for lease in core.kv.expire(now) {
            let Some(reader) = self.readers.remove(&lease) else { continue };
            core.meters.leases_lapsed.increment(1);
            tracing::warn!(worker = core.config.name, %lease, reader = %reader.worker, "a lease lapsed");
            if let Some((session, key)) = reader.handoff {
                self.unread(core, session, key, lease, reader.worker);
            }
        }
        self.offer_loaded(core, now);
    }

    /// A handoff's reader did not renew its lease: it may never have heard of it, so that nobody but its owner can
    /// say that it came to nothing.
    fn unread(&mut self, core: &mut WorkerState, session: SessionId, key: SeqKey, lease: LeaseId, reader: WorkerId) {
        let (request, epoch, why) = (key.request, key.epoch, Failure::HandoffLapsed);
        let detail = format!("worker {reader} did not renew the lease under which it was to take it over");
        if self.open.get(&key).is_some_and(|open| open.lease == lease) {
            self.withdraw(core, key);
            core.fail_by(Some(reader), request, epoch, why, detail);
        } else if core.sessions.get_mut(session).is_some() {
            // Computed and forgotten here, and the router waits for the reader.
            let fault = Some(reader);
            core.tell(session, &FromWorker::Failed { request, epoch, why, fault, detail });
        }
    }

    /// A reader came back as a new life: what was offered to its old one is void.
    pub(crate) fn reader_restarted(&mut self, core: &mut WorkerState, reader: WorkerId) {
        self.open.retain(|_, open| open.taker.to != reader);
        let leases: Vec<LeaseId> =
            self.readers.iter().filter(|(_, of)| of.worker == reader).map(|(&lease, _)| lease).collect();
        for lease in leases {
            self.readers.remove(&lease);
            core.kv.withdraw(lease);
        }
        for (key, _) in self.asked.extract_if(.., |_, asked| asked.from == reader).collect::<Vec<_>>() {
            core.loader().drop_load(key);
        }
    }

    /// The connection to a reader was lost, and with it maybe what the reader was told of offers that are not
    /// complete. It would wait for the rest of those in vain.
    pub(crate) fn reader_lost(&mut self, core: &mut WorkerState, reader: WorkerId) {
        let keys: Vec<SeqKey> =
            self.open.iter().filter(|(_, open)| open.taker.to == reader).map(|(&key, _)| key).collect();
        for key in keys {
            self.withdraw(core, key);
            let detail = format!("the connection to {reader}, which was to take it over, was lost");
            core.fail_by(Some(reader), key.request, key.epoch, Failure::HandoffLapsed, detail);
        }
    }

    /// Returns whether a peer may read here, or waits for what it asked for.
    pub(crate) fn deals_with(&self, peer: WorkerId) -> bool {
        self.readers.values().any(|reader| reader.worker == peer) || self.asked.values().any(|asked| asked.from == peer)
    }

    /// Returns when `tick` must be called at the latest.
    pub fn next_deadline(&self, core: &WorkerState) -> Option<Time> {
        self.asked.values().map(|asked| asked.until).chain(core.kv.next_deadline()).min()
    }
}
