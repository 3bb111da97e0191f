//! The owner: the real manager and check of lives, in a shell that does what a worker's does, and an engine with a
//! memory of one block of two layers.
//!
//! It computes one prompt of one block, which it offers to every rank before the first step, or fetches it, and offers it
//! when it is valid, or has it cached, and offers it to every rank that asks; and it wants the block for something else as soon
//! as the prompt is complete or has failed.

use crate::action::Seen;
use crate::network::Envelope;
use crate::scope::{Scope, Source};
use crate::world::{LAYERS, LEASE, reader_of};
use domain::handoff::{Ask, Offer, PeerBody, PeerMessage};
use domain::planted_bugs::{self, Bug};
use domain::{
    BlockHash, Choice, Epoch, Incarnation, LeaseId, ProgressWord, RequestId, SeqKey, StepId, Tenant, Time, WorkerId,
};
use kv_manager::{
    Admit, EvictionPolicy, GroupConfig, Grow, Heard, Incarnations, KvConfig, KvManager, OfferParts, Quotas, Watermarks,
};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

pub(crate) const OWNER: WorkerId = WorkerId(0);
/// Positions of the prompt, and of a block.
const TOKENS: u32 = 1;
/// Whose everything is.
pub(crate) const TENANT: Tenant = Tenant(1);
/// The identity of the prompt's block.
pub(crate) const PROMPT: BlockHash = BlockHash([7; 16]);
/// The choice under which cached blocks are held while they are offered.
const ASKED: Choice = Choice(9);
/// Long after everything.
const NEVER: Time = Time(u64::MAX / 2);

/// How far the engine is with a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// It has no block.
    Waiting,
    /// It has its block, and no step.
    Open,
    /// Its copy is validated and offered.
    Offered,
    /// Its step runs, or its copy comes in, and this many layers are written.
    Running(u16),
    /// Its step has failed; the step loop has not seen it yet.
    Failed,
    /// Its step has ended; its block is given back.
    Ended,
}

/// The owner.
#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) life: Incarnation,
    pub(crate) now: Time,
    pub(crate) kv: KvManager,
    pub(crate) lives: Incarnations,
    /// The prompt that is handed off, and who wants the block afterwards.
    pub(crate) prompt: Stage,
    pub(crate) next: Stage,
    /// The prompt's step succeeded.
    pub(crate) written: bool,
    /// Readers, as the worker's `Offers` keeps them: leases and to whom they were given.
    readers: BTreeMap<LeaseId, u8>,
    /// Offers that were neither completed nor withdrawn, and to whom.
    open: Vec<(LeaseId, u8)>,
    /// The progress word.
    pub(crate) word: u64,
    /// What is in each layer slice of the block: the number of the use that wrote it; 0: nothing.
    pub(crate) slices: [u8; LAYERS as usize],
    /// The block is free, or cached and can be evicted.
    pub(crate) available: bool,
    /// Of everything but what belongs to a rank.
    pub(crate) digest: u64,
}

/// What the prompt of an owner's life is in memory.
pub(crate) fn bytes_of(life: Incarnation) -> [u8; LAYERS as usize] {
    [10 * life.0 as u8 + 1; LAYERS as usize]
}

impl Owner {
    pub(crate) fn new(life: Incarnation, now: Time, source: Source) -> Self {
        let group = GroupConfig { blocks: 1, window: None };
        let kv = KvManager::new(KvConfig {
            block_tokens: TOKENS,
            groups: vec![group],
            eviction: EvictionPolicy::Lru,
            watermarks: Watermarks::default(),
            pinned_percent: 0,
            quotas: Quotas::default(),
            park_after: None,
            reserve_blocks: 0,
            answers_max: 64,
            leases_max: 64,
        });
        let mut owner = Self {
            life,
            now,
            kv,
            lives: Incarnations::new(life),
            prompt: Stage::Waiting,
            next: Stage::Waiting,
            written: false,
            readers: BTreeMap::new(),
            open: Vec::new(),
            word: 0,
            slices: [0; LAYERS as usize],
            available: true,
            digest: 0,
        };
        if source == Source::Cached {
            owner.begin_cached();
        }
        owner.changed();
        owner
    }

    /// Its first life has computed the prompt before anything else happens.
    fn begin_cached(&mut self) {
        if self.life == Incarnation(1) {
            let key = self.key(1);
            assert_eq!(self.kv.open(key, TENANT, &[PROMPT], TOKENS, 1), Admit::Ready { cached_tokens: 0 });
            self.kv.written(key, TOKENS, &[PROMPT]);
            self.kv.close(key);
            self.slices = bytes_of(self.life);
            self.written = true;
        }
        self.prompt = Stage::Ended;
    }

    fn key(&self, request: u64) -> SeqKey {
        SeqKey { request: RequestId(request), epoch: Epoch(self.life.0 as u32), choice: Choice(0) }
    }

    fn send(&self, rank: u8, ranks: u8, body: PeerBody, out: &mut Vec<Envelope>) {
        let to_incarnation = self.lives.of(reader_of(rank, ranks));
        let message = PeerMessage { from: OWNER, from_incarnation: self.life, to_incarnation, body };
        out.push(Envelope::new(false, rank, message));
    }

    // -- the step loop

    /// Whether the engine and the step loop have something to do.
    pub(crate) fn can_go_on(&self) -> bool {
        match (self.prompt, self.next) {
            (Stage::Ended, Stage::Ended) => false,
            (Stage::Ended, Stage::Waiting) => self.available,
            _ => true,
        }
    }

    /// What it does next, for a trace.
    pub(crate) fn describe_next(&self) -> String {
        match (self.prompt, self.next) {
            _ if self.life != Incarnation(1) && self.prompt != Stage::Ended => "a prompt of its new life".to_owned(),
            (Stage::Waiting, _) => "the prompt gets the block, and is offered if it is computed here".to_owned(),
            (Stage::Open, _) => "the prompt's step begins, or its copy comes in".to_owned(),
            (Stage::Running(LAYERS), _) => "that has ended; the prompt is complete, or valid and offered".to_owned(),
            (Stage::Offered, _) => "the prompt is complete".to_owned(),
            (Stage::Running(layer), _) => format!("layer {layer} of the prompt is written"),
            (Stage::Failed, _) => "the step has failed; the offers are withdrawn, the prompt is closed".to_owned(),
            (Stage::Ended, Stage::Waiting) => "the block is given to a new use".to_owned(),
            (Stage::Ended, Stage::Running(layer)) => format!("the new use writes layer {layer}"),
            (Stage::Ended, next) => format!("{next:?}"),
        }
    }

    /// The next thing that the engine or the step loop does. A later life, of which nobody reads, does its prompt in one
    /// go: what matters of it are its leases.
    pub(crate) fn go_on(&mut self, scope: Scope, out: &mut Vec<Envelope>, seen: &mut Vec<Seen>) {
        match self.prompt {
            Stage::Ended => self.next_goes_on(seen),
            _ if self.life == Incarnation(1) => self.prompt_goes_on(scope, out, seen),
            _ => {
                while self.prompt != Stage::Ended {
                    self.prompt_goes_on(scope, out, seen);
                }
            }
        }
    }

    fn prompt_goes_on(&mut self, scope: Scope, out: &mut Vec<Envelope>, seen: &mut Vec<Seen>) {
        let (key, ranks) = (self.key(1), scope.ranks);
        self.prompt = match self.prompt {
            Stage::Waiting => {
                let leave = u32::from(scope.source == Source::Computed);
                let admit = self.kv.open(key, TENANT, &[PROMPT], TOKENS, leave);
                assert_eq!(admit, Admit::Ready { cached_tokens: 0 }, "an empty pool has room");
                self.offer_to_all(scope, key, out, seen);
                Stage::Open
            }
            Stage::Open if scope.source == Source::Fetched => Stage::Running(0),
            Stage::Open => {
                assert_eq!(self.kv.grow(key, TOKENS), Grow::Ready(Vec::new()), "the block is the prompt's own");
                for &(lease, rank) in &self.open {
                    self.send(rank, ranks, PeerBody::Written { lease, step: StepId(1), tokens: TOKENS }, out);
                }
                Stage::Running(0)
            }
            Stage::Running(LAYERS) => {
                self.kv.written(key, TOKENS, &[PROMPT]);
                self.written = true;
                match scope.source {
                    Source::Computed => self.complete(key, ranks, out),
                    Source::Fetched => {
                        self.offer_to_all(scope, key, out, seen);
                        Stage::Offered
                    }
                    Source::Cached => unreachable!("it was computed before"),
                }
            }
            Stage::Offered => self.complete(key, ranks, out),
            Stage::Running(layer) => {
                self.slices[usize::from(layer)] = bytes_of(self.life)[0];
                if scope.source == Source::Computed {
                    self.word = ProgressWord::mark(StepId(1), layer);
                }
                Stage::Running(layer + 1)
            }
            Stage::Failed => {
                self.withdraw(ranks, out, seen);
                Stage::Ended
            }
            Stage::Ended => unreachable!("the prompt has ended"),
        }
    }

    fn complete(&mut self, key: SeqKey, ranks: u8, out: &mut Vec<Envelope>) -> Stage {
        for (lease, rank) in std::mem::take(&mut self.open) {
            let complete = PeerBody::Complete { lease, missing: Vec::new(), first: vec![(Choice(0), 5)] };
            self.send(rank, ranks, complete, out);
        }
        self.kv.close(key);
        Stage::Ended
    }

    /// Offers the prompt to every rank, unless that was done or the manager does not allow it.
    fn offer_to_all(&mut self, scope: Scope, key: SeqKey, out: &mut Vec<Envelope>, seen: &mut Vec<Seen>) {
        if self.open.is_empty() {
            (0..scope.readers * scope.ranks).for_each(|rank| self.offer(rank, scope, key, out, seen));
        }
    }

    fn offer(&mut self, rank: u8, scope: Scope, key: SeqKey, out: &mut Vec<Envelope>, seen: &mut Vec<Seen>) {
        let Some(parts) = self.kv.offer(self.now, key, TOKENS, LEASE, NEVER) else { return };
        let lease = parts.lease;
        self.readers.insert(lease, rank);
        self.open.push((lease, rank));
        let in_flight = scope.source == Source::Fetched && !self.written;
        seen.push(Seen::Granted { lease, rank, at: self.now, in_flight });
        let offer = Offer {
            request: key.request,
            epoch: key.epoch,
            lease,
            duration: LEASE,
            layout: 0,
            tokens: TOKENS,
            ready: parts.ready,
            groups: parts.groups,
        };
        self.send(rank, scope.ranks, PeerBody::Offer(offer), out);
        // Leases lapse one by one where there is one reader, and reader by reader where there are more: its ranks stay
        // alike, until one of them renews its lease.
        if scope.readers == 1 || (rank + 1).is_multiple_of(scope.ranks) {
            self.now = self.now + Duration::from_nanos(1);
        }
    }

    /// Offers what is cached to a rank that asks, or declines, as the worker's `Offers` do.
    fn asked(&mut self, rank: u8, ranks: u8, ask: &Ask, out: &mut Vec<Envelope>, seen: &mut Vec<Seen>) {
        let &Ask { request, epoch, lease: duration, ref chain, .. } = ask;
        let key = SeqKey { choice: ASKED, ..self.key(1) };
        let tokens = self.kv.cached_tokens(chain);
        let held = tokens > 0 && matches!(self.kv.open(key, TENANT, chain, tokens, 0), Admit::Ready { .. });
        let parts = held.then(|| self.kv.offer(self.now, key, tokens, duration, NEVER)).flatten();
        self.kv.close(key);
        let Some(OfferParts { lease, ready, groups }) = parts else {
            return self.send(rank, ranks, PeerBody::Decline { request, epoch }, out);
        };
        seen.push(Seen::Granted { lease, rank, at: self.now, in_flight: false });
        if planted_bugs::is(Bug::CachedBlocksUnheld) {
            self.kv.release(self.now, lease);
        } else {
            self.readers.insert(lease, rank);
        }
        self.send(
            rank,
            ranks,
            PeerBody::Offer(Offer { request, epoch, lease, duration, layout: 0, tokens, ready, groups }),
            out,
        );
        // Leases lapse one by one.
        self.now = self.now + Duration::from_nanos(1);
    }

    /// The prompt's step fails in the engine: the word stays where it is.
    pub(crate) fn fail_step(&mut self) {
        if planted_bugs::is(Bug::FailedStepPassesWord) {
            self.word = ProgressWord::mark(StepId(1), LAYERS - 1);
        }
        self.prompt = Stage::Failed;
    }

    /// The step loop sees that it failed: nothing of it counts, and the offers are void before the word of a later step
    /// passes what they promised.
    fn withdraw(&mut self, ranks: u8, out: &mut Vec<Envelope>, seen: &mut Vec<Seen>) {
        for (lease, rank) in std::mem::take(&mut self.open) {
            self.kv.withdraw(lease);
            self.readers.remove(&lease);
            seen.push(Seen::Withdrawn { lease });
            self.send(rank, ranks, PeerBody::Withdraw { lease }, out);
        }
        self.kv.close(self.key(1));
    }

    fn next_goes_on(&mut self, seen: &mut Vec<Seen>) {
        let key = self.key(2);
        self.next = match self.next {
            Stage::Waiting => {
                let admit = self.kv.open(key, TENANT, &[], TOKENS, 1);
                assert_eq!(admit, Admit::Ready { cached_tokens: 0 }, "a block was available");
                assert_eq!(self.kv.grow(key, TOKENS), Grow::Ready(Vec::new()), "the block is its own");
                seen.push(Seen::Reused);
                Stage::Running(0)
            }
            Stage::Running(layer) => {
                self.slices[usize::from(layer)] = bytes_of(self.life)[0] + 1;
                self.word = ProgressWord::mark(StepId(2), layer);
                if layer + 1 < LAYERS {
                    Stage::Running(layer + 1)
                } else {
                    self.kv.close(key);
                    Stage::Ended
                }
            }
            Stage::Open | Stage::Offered | Stage::Failed | Stage::Ended => {
                unreachable!("it does not fail, and has not ended")
            }
        }
    }

    // -- messages and time

    /// A message arrives.
    pub(crate) fn hear(&mut self, envelope: &Envelope, ranks: u8, out: &mut Vec<Envelope>, seen: &mut Vec<Seen>) {
        let (rank, message) = (envelope.rank, &*envelope.message);
        let heard = self.lives.hear(message);
        if heard == Heard::Stale {
            match message.body {
                PeerBody::Release { lease } | PeerBody::Renew { lease, .. } => {
                    self.send(rank, ranks, PeerBody::Released { lease, valid: false }, out);
                }
                PeerBody::Ask(Ask { request, epoch, .. }) => {
                    self.send(rank, ranks, PeerBody::Decline { request, epoch }, out);
                }
                _ => {}
            }
            return;
        }
        if heard == Heard::Restarted {
            self.reader_restarted(message.from, ranks, seen);
        }
        match message.body {
            PeerBody::Ask(ref ask) => self.asked(rank, ranks, ask, out, seen),
            PeerBody::Renew { lease, ticks } => {
                seen.push(Seen::Renewed { lease, ticks, by: rank });
                if !self.kv.renew(self.now, lease, ticks) && !self.kv.was_valid(lease) {
                    self.send(rank, ranks, PeerBody::Released { lease, valid: false }, out);
                }
            }
            PeerBody::Release { lease } => {
                let valid = self.kv.release(self.now, lease);
                self.readers.remove(&lease);
                seen.push(Seen::Answered { lease, valid, written: self.written });
                self.send(rank, ranks, PeerBody::Released { lease, valid }, out);
            }
            PeerBody::ReleaseAck { lease } => {
                self.kv.ack(lease);
                seen.push(Seen::Acknowledged { lease });
            }
            _ => {}
        }
    }

    fn reader_restarted(&mut self, reader: WorkerId, ranks: u8, seen: &mut Vec<Seen>) {
        self.open.retain(|&(_, rank)| reader_of(rank, ranks) != reader);
        let given = self.readers.iter().filter(|&(_, &rank)| reader_of(rank, ranks) == reader);
        let leases: Vec<LeaseId> = given.map(|(&lease, _)| lease).collect();
        for lease in leases {
            self.readers.remove(&lease);
            self.kv.withdraw(lease);
            seen.push(Seen::Withdrawn { lease });
        }
    }

    /// Time passes until the next lease has lapsed; the owner is busy and does not see it yet.
    pub(crate) fn clock(&mut self) {
        self.now = self.now.max(self.kv.next_deadline().expect("a lease is alive"));
    }

    /// It sees what lapsed.
    pub(crate) fn expire(&mut self) {
        for lease in self.kv.expire(self.now) {
            self.readers.remove(&lease);
        }
    }

    /// A lease has lapsed and was not seen.
    pub(crate) fn is_overdue(&self) -> bool {
        self.kv.next_deadline().is_some_and(|at| at <= self.now)
    }

    /// What is asked often, after a change.
    pub(crate) fn changed(&mut self) {
        self.available = self.kv.stats()[0].available() > 0;
        let mut hasher = DefaultHasher::new();
        (self.life, self.prompt, self.next, self.written, self.word, self.slices, self.is_overdue()).hash(&mut hasher);
        self.kv.digest(&mut hasher);
        self.digest = hasher.finish();
    }

    /// What belongs to this rank.
    pub(crate) fn rank_digest(&self, rank: u8, ranks: u8, hasher: &mut impl Hasher) {
        self.lives.of(reader_of(rank, ranks)).hash(hasher);
        self.readers.values().any(|&to| to == rank).hash(hasher);
        self.open.iter().any(|&(_, to)| to == rank).hash(hasher);
    }
}
