//! The reader's side of handoffs: for each expected prompt a fetch machine, and its transfers. Room to read into
//! it gets in its turn among all that wait for some ([`scheduler`]). Prefixes that other workers hold come by the
//! same machine; what is their own is in [`prefix`].

#[cfg(feature = "explore")]
mod explore;
mod prefix;

use crate::config::{EARLY_MESSAGES_MAX, EARLY_OFFERS_MAX, OVER_MAX};
use crate::state::{QUEUE_FULL, WorkerState};
use crate::transport::ReadError;
use domain::handoff::{Offer, PeerBody};
use domain::planted_bugs::{self, Bug};
use domain::session::Failure;
use domain::{Epoch, KvLayout, LeaseId, ProgressWord, RequestId, SeqKey, StepId, Time, Token, WorkerId};
use kv_manager::{Fetch, FetchCommand, FetchConfig, FetchError, FetchEvent, FetchState, Piece};
use scheduler::{Added, Job, Kind};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;
use telemetry::failpoint::{self, Place};
use telemetry::metrics::{self as declared, HandoffResult, PrefixResult};
use transport::{Completion, Copy, PrepareError, ReadBatch, RegionId, TransferError, TransferId};

/// What a fetch brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchKind {
    /// A prompt that its owner computes, to go on with.
    Prompt,
    /// A sequence that decodes at its owner meanwhile, which may be ahead of what is known here.
    Running,
    /// The beginning of a prompt that is to be computed here.
    Prefix,
}

/// All fetches of a worker.
#[derive(Default)]
pub struct Fetches {
    open: BTreeMap<(RequestId, Epoch), Entry>,
    leases: BTreeMap<(WorkerId, LeaseId), (RequestId, Epoch)>,
    transfers: HashMap<TransferId, ((RequestId, Epoch), u32)>,
    /// When each machine is due next: one entry each, but for those that wait for no time.
    deadlines: BTreeSet<(Time, (RequestId, Epoch))>,
    /// Offers, and what followed them, that came before their submit.
    early: VecDeque<Early>,
    /// The last attempts that take no offer, oldest first: it was still to come when they were over, or was given
    /// back before they began. It is given back whenever it comes.
    over: VecDeque<(RequestId, Epoch)>,
}

/// Where a fetch stands.
#[derive(Clone, Copy, Debug)]
pub struct FetchProgress<'a> {
    /// The request.
    pub request: RequestId,
    /// The attempt.
    pub epoch: Epoch,
    /// What it brings.
    pub kind: FetchKind,
    /// The machine's state.
    pub state: FetchState,
    /// When the owner last said that the prompt waits in its queue.
    pub queued: Option<Time>,
    /// The owner has computed all of it.
    pub complete: bool,
    /// Transfers posted and not ended.
    pub transfers: &'a [TransferId],
}

struct Entry {
    machine: Fetch,
    /// Its entry among the deadlines.
    due: Option<Time>,
    owner: WorkerId,
    key: SeqKey,
    kind: FetchKind,
    /// Sequences that go on with it.
    choices: u16,
    /// Output tokens that were not known here when it began.
    missing: Vec<Token>,
    /// Pieces to be read once the owner is connected.
    unposted: Vec<Vec<Piece>>,
    /// Transfers posted and not ended.
    transfers: Vec<TransferId>,
    /// The machine cancelled its reads and waits for them to end.
    cancelling: bool,
    /// The router gave the attempt up before it ended here.
    cancelled: bool,
    /// A read failed here, and not at its owner.
    failed_here: bool,
    lane: &'static str,
    /// Positions of the prefix that was asked for.
    asked: u32,
    /// Positions of the offer, once it is there.
    tokens: Option<u32>,
    /// Positions below this were here before.
    held: u32,
    /// Blocks of the prefix that came, and how long after the prompt.
    came: Option<(Range<u32>, Duration)>,
    completed: Option<Time>,
}

impl Entry {
    fn new(machine: Fetch, key: SeqKey, owner: WorkerId, kind: FetchKind, choices: u16) -> Self {
        Self {
            machine,
            due: None,
            owner,
            key,
            kind,
            choices,
            missing: Vec::new(),
            unposted: Vec::new(),
            transfers: Vec::new(),
            cancelling: false,
            cancelled: false,
            failed_here: false,
            lane: "none",
            asked: 0,
            tokens: None,
            held: 0,
            came: None,
            completed: None,
        }
    }

    /// Returns the worker that did not do its part, if another one did not: the owner, except where the wait was for
    /// room here, a read failed here, the lease was not renewed in time, or the client's time is over.
    fn fault(&self, error: FetchError) -> Option<WorkerId> {
        let own = match error {
            FetchError::TimedOut { waiting_for } => waiting_for == FetchState::WaitingRoom,
            FetchError::LeaseOver | FetchError::NotValid | FetchError::Deadline => true,
            FetchError::ReadFailed => self.failed_here,
            _ => false,
        };
        (own == planted_bugs::is(Bug::WrongPeerBlamed)).then_some(self.owner)
    }
}

struct Early {
    from: WorkerId,
    offer: Offer,
    then: Vec<PeerBody>,
    arrived: Time,
}

impl Fetches {
    /// The KV of an attempt will be offered by `owner`: of its prompt, or (`running`) of a sequence that decodes
    /// there. Its sequence is in `core` already ([`WorkerState::expect`]).
    pub fn expect(&mut self, core: &mut WorkerState, now: Time, key: SeqKey, owner: WorkerId, running: bool) {
        let Some(attempt) = core.attempt(key.request, key.epoch) else { return };
        let machine = Fetch::expect(now, config(core, core.config.handoff_wait), attempt.deadline);
        let kind = if running { FetchKind::Running } else { FetchKind::Prompt };
        let id = (key.request, key.epoch);
        self.open.insert(id, Entry::new(machine, key, owner, kind, attempt.submit.choices.len() as u16));
        self.note_deadline(id);
        // While the owner computes, so that nothing waits for it then.
        core.transport.connect(owner);
        let early =
            self.early.iter().position(|early| early.from == owner && (early.offer.request, early.offer.epoch) == id);
        if let Some(early) = early.and_then(|at| self.early.remove(at)) {
            self.offered(core, now, early.from, early.offer);
            for body in early.then {
                self.handle(core, now, early.from, body);
            }
        }
    }

    /// The attempt is over for the router.
    pub fn cancel(&mut self, core: &mut WorkerState, now: Time, request: RequestId, epoch: Epoch) {
        self.event(core, now, (request, epoch), FetchEvent::Cancel);
    }

    /// An owner's message. What belongs to no fetch is stale and counted.
    pub fn handle(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, body: PeerBody) {
        let (lease, event) = match &body {
            PeerBody::Offer(offer) => return self.offered(core, now, from, offer.clone()),
            PeerBody::Written { lease, step, tokens } => (*lease, FetchEvent::Written { step: *step, tokens: *tokens }),
            PeerBody::Complete { lease, first, .. } => (*lease, FetchEvent::Complete { first: first.clone() }),
            PeerBody::Withdraw { lease } => (*lease, FetchEvent::Withdraw),
            PeerBody::Released { lease, valid } => (*lease, FetchEvent::Released { valid: *valid }),
            PeerBody::Decline { request, epoch } => return self.declined(core, now, from, (*request, *epoch)),
            PeerBody::Queued { request, epoch } => return self.queued(core, now, from, (*request, *epoch)),
            PeerBody::Ask(_)
            | PeerBody::Expect { .. }
            | PeerBody::Renew { .. }
            | PeerBody::Release { .. }
            | PeerBody::ReleaseAck { .. } => return,
        };
        if let Some(&id) = self.leases.get(&(from, lease)) {
            if let PeerBody::Complete { missing, first, .. } = body
                && !first.is_empty()
                && let Some(entry) = self.open.get_mut(&id)
                && entry.kind != FetchKind::Prefix
                && entry.completed.is_none()
            {
                entry.completed = Some(now);
                tracing::trace!(target: "timeline", worker = core.config.name, request = %id.0, "complete taken");
                let known = core.sequences.get(&entry.key).map_or(0, |sequence| sequence.tokens.len());
                if entry.tokens.is_some_and(|tokens| known + missing.len() != tokens as usize) {
                    let detail = format!("worker {from} does not say which tokens it hands over");
                    core.fail_by(Some(from), id.0, id.1, Failure::HandoffLapsed, detail);
                    return self.event(core, now, id, FetchEvent::Cancel);
                }
                entry.missing = missing;
            }
            return self.event(core, now, id, event);
        }
        match self.early.iter().position(|early| early.from == from && early.offer.lease == lease) {
            Some(at) if matches!(body, PeerBody::Withdraw { .. }) => drop(self.early.remove(at)),
            Some(at) if self.early[at].then.len() == EARLY_MESSAGES_MAX => {
                self.early.remove(at).into_iter().for_each(|early| self.give_back(core, early));
            }
            Some(at) => self.early[at].then.push(body),
            None if matches!(body, PeerBody::Released { .. }) => core.send(from, PeerBody::ReleaseAck { lease }),
            None => core.meters.stale_lease.increment(1),
        }
    }

    /// What is expected of the owner waits in its queue.
    fn queued(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, id: (RequestId, Epoch)) {
        match self.open.get(&id) {
            Some(entry) if entry.owner == from => self.event(core, now, id, FetchEvent::Queued),
            _ => core.meters.stale_lease.increment(1),
        }
    }

    fn offered(&mut self, core: &mut WorkerState, now: Time, from: WorkerId, offer: Offer) {
        let id = (offer.request, offer.epoch);
        match self.open.get_mut(&id) {
            Some(entry) if entry.owner == from && entry.tokens.is_none() && !self.over.contains(&id) => {
                entry.tokens = Some(offer.tokens);
                let known = core.sequences.get(&entry.key).map(|sequence| sequence.tokens.len() as u32);
                let fits = |known| match entry.kind {
                    FetchKind::Prompt => offer.tokens == known,
                    FetchKind::Running => offer.tokens >= known,
                    FetchKind::Prefix => prefix::fits(core, offer.tokens, known),
                };
                if !known.is_none_or(fits) {
                    core.send(from, PeerBody::Release { lease: offer.lease });
                    if entry.kind == FetchKind::Prefix {
                        return self.give_up(core, now, id, PrefixResult::Failed);
                    }
                    let detail = format!("worker {from} offers {} tokens of another prompt", offer.tokens);
                    core.fail_by(Some(from), id.0, id.1, Failure::HandoffLapsed, detail);
                    return self.event(core, now, id, FetchEvent::Cancel);
                }
                self.leases.insert((from, offer.lease), id);
                self.event(core, now, id, FetchEvent::Offer(offer));
            }
            // What was asked for twice is offered twice, under two leases; and an offer that was given back may
            // come twice.
            Some(_) if !self.leases.contains_key(&(from, offer.lease)) => {
                core.meters.stale_lease.increment(1);
                core.send(from, PeerBody::Release { lease: offer.lease });
            }
            Some(_) => core.meters.stale_lease.increment(1),
            // One that came twice would be released when the copy's time is over, under the eyes of its reader.
            None if self.early.iter().any(|early| early.from == from && early.offer.lease == offer.lease) => {
                core.meters.stale_lease.increment(1);
            }
            None if self.over.contains(&id) => core.send(from, PeerBody::Release { lease: offer.lease }),
            None => {
                if self.early.len() == EARLY_OFFERS_MAX
                    && let Some(oldest) = self.early.pop_front()
                {
                    self.give_back(core, oldest);
                }
                self.early.push_back(Early { from, offer, then: Vec::new(), arrived: now });
            }
        }
    }

    /// The owner of some fetches is connected: what waited for it is read.
    pub fn connected(&mut self, core: &mut WorkerState, now: Time, owner: WorkerId) {
        let waiting =
            self.open.iter().filter(|(_, entry)| entry.owner == owner && !entry.unposted.is_empty()).map(|(&id, _)| id);
        for id in waiting.collect::<Vec<_>>() {
            let Some(entry) = self.open.get_mut(&id) else { continue };
            for pieces in std::mem::take(&mut entry.unposted) {
                if let Some(failed) = self.read(core, id, pieces) {
                    // Nothing more is to be read.
                    self.event(core, now, id, failed);
                    break;
                }
            }
        }
    }

    /// The owner of some fetches is not connected, or no more: what waited for it failed, and what it offered
    /// before it was computed has no end, for what it said of that is lost
    /// ([`Offers::reader_lost`](crate::Offers::reader_lost) is the other side of it).
    pub fn owner_lost(&mut self, core: &mut WorkerState, now: Time, owner: WorkerId) {
        let of_it: Vec<_> = self.open.iter().filter(|(_, entry)| entry.owner == owner).map(|(&id, _)| id).collect();
        for id in of_it {
            let Some(entry) = self.open.get_mut(&id) else { continue };
            if !entry.unposted.is_empty() {
                let pieces = std::mem::take(&mut entry.unposted).iter().map(|pieces| pieces.len() as u32).sum();
                self.event(core, now, id, FetchEvent::ReadsEnded { pieces, ok: false });
            } else if entry.tokens.is_some() && !entry.machine.is_complete() {
                self.event(core, now, id, FetchEvent::Withdraw);
            }
        }
        self.holder_lost(core, now, owner);
    }

    /// Begins to read, or keeps in mind to do so when the owner is connected; what the machine must hear at once,
    /// if anything.
    fn read(&mut self, core: &mut WorkerState, id: (RequestId, Epoch), pieces: Vec<Piece>) -> Option<FetchEvent> {
        let entry = self.open.get_mut(&id)?;
        let count = pieces.len() as u32;
        match core.transport.read(entry.owner, batches(&core.config.layout, &pieces)) {
            Ok((transfer, lane)) => {
                entry.lane = lane.name();
                let (worker, request) = (&core.config.name, id.0);
                tracing::trace!(target: "timeline", worker, %request, transfer = transfer.0, "read posted");
                entry.transfers.push(transfer);
                self.transfers.insert(transfer, (id, count));
                failpoint::pass(Place::Read, "posted");
                None
            }
            Err(ReadError::NotConnected) => {
                entry.unposted.push(pieces);
                core.transport.connect(entry.owner);
                None
            }
            Err(error) => {
                entry.failed_here = is_own(&error);
                tracing::warn!(worker = core.config.name, request = %id.0, %error, "a read was not begun");
                Some(FetchEvent::ReadsEnded { pieces: count, ok: false })
            }
        }
    }

    /// A transfer ended.
    pub fn transfer_ended(&mut self, core: &mut WorkerState, now: Time, completion: &Completion) {
        let Some((id, pieces)) = self.transfers.remove(&completion.id) else { return };
        if let Ok(report) = &completion.result {
            core.fetched(report);
        }
        let Some(entry) = self.open.get_mut(&id) else { return };
        let (worker, request, transfer) = (&core.config.name, id.0, completion.id.0);
        tracing::trace!(target: "timeline", worker, %request, transfer, ok = completion.result.is_ok(), "read ended");
        entry.transfers.retain(|&transfer| transfer != completion.id);
        entry.failed_here = completion.result == Err(TransferError::Failed);
        let quiesced = entry.cancelling && entry.transfers.is_empty();
        self.event(core, now, id, FetchEvent::ReadsEnded { pieces, ok: completion.result.is_ok() });
        if quiesced {
            self.event(core, now, id, FetchEvent::Quiesced);
        }
    }

    /// A peer came back as a new life: what its old one offered is void.
    pub fn owner_restarted(&mut self, core: &mut WorkerState, now: Time, owner: WorkerId) {
        self.early.retain(|early| early.from != owner);
        let lost: Vec<_> = self.leases.iter().filter(|((from, _), _)| *from == owner).map(|(_, &id)| id).collect();
        for id in lost {
            self.event(core, now, id, FetchEvent::OwnerLost);
        }
        self.holder_lost(core, now, owner);
    }

    /// A handoff has its room, which was opened; so many of its tokens were here already.
    pub fn room_given(&mut self, core: &mut WorkerState, now: Time, key: SeqKey, cached_tokens: u32) {
        core.meters.prefix_hit_tokens.increment(u64::from(cached_tokens));
        let room = FetchEvent::Room { tables: core.kv.tables(key), held_tokens: cached_tokens };
        self.event(core, now, (key.request, key.epoch), room);
    }

    /// This worker stood still for so long, and has not heard yet what owners said meanwhile.
    pub fn stood_still(&mut self, pause: Duration) {
        for (&id, entry) in &mut self.open {
            entry.machine.stood_still(pause);
            note_deadline(&mut self.deadlines, id, entry);
        }
        self.early.iter_mut().for_each(|early| early.arrived = early.arrived + pause);
    }

    /// Deadlines may have passed.
    pub fn tick(&mut self, core: &mut WorkerState, now: Time) {
        let ticks = core.ticks();
        let due: Vec<_> = self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|&(_, id)| id).collect();
        for id in due {
            self.event(core, now, id, FetchEvent::Tick { ticks });
        }
        while self.early.front().is_some_and(|early| early.arrived + core.config.handoff_wait <= now) {
            if let Some(early) = self.early.pop_front() {
                self.give_back(core, early);
            }
        }
    }

    /// Every fetch that is open, for those who look.
    pub fn progress(&self) -> impl Iterator<Item = FetchProgress<'_>> {
        self.open.iter().map(|(&(request, epoch), entry)| FetchProgress {
            request,
            epoch,
            kind: entry.kind,
            state: entry.machine.state(),
            queued: entry.machine.queued(),
            complete: entry.machine.is_complete(),
            transfers: &entry.transfers,
        })
    }

    /// Entries of every list, by name: nothing is left of a fetch that is over.
    pub fn sizes(&self) -> [(&'static str, usize); 5] {
        [
            ("fetches", self.open.len()),
            ("leases of fetches", self.leases.len()),
            ("transfers", self.transfers.len()),
            ("deadlines of fetches", self.deadlines.len()),
            ("early offers", self.early.len()),
        ]
    }

    /// Whether anything is to come from a peer.
    pub fn deals_with(&self, peer: WorkerId) -> bool {
        self.open.values().any(|entry| entry.owner == peer) || self.early.iter().any(|early| early.from == peer)
    }

    /// When `tick` must be called at the latest.
    pub fn next_deadline(&self, core: &WorkerState) -> Option<Time> {
        let machines = self.deadlines.first().map(|&(at, _)| at);
        let early = self.early.front().map(|early| early.arrived + core.config.handoff_wait);
        machines.into_iter().chain(early).min()
    }

    /// Feeds the machine, does what it says, and notes when it is due next.
    fn event(&mut self, core: &mut WorkerState, now: Time, id: (RequestId, Epoch), event: FetchEvent) {
        self.feed(core, now, id, event);
        self.note_deadline(id);
    }

    fn note_deadline(&mut self, id: (RequestId, Epoch)) {
        if let Some(entry) = self.open.get_mut(&id) {
            note_deadline(&mut self.deadlines, id, entry);
        }
    }

    fn feed(&mut self, core: &mut WorkerState, now: Time, id: (RequestId, Epoch), event: FetchEvent) {
        if let Some(entry) = self.open.get_mut(&id) {
            entry.cancelled |= matches!(event, FetchEvent::Cancel);
        }
        let mut events = VecDeque::from([event]);
        let mut commands = Vec::new();
        while let Some(event) = events.pop_front() {
            let Some(entry) = self.open.get_mut(&id) else { return };
            entry.machine.handle(now, event, &mut commands);
            for command in commands.drain(..) {
                let Some(entry) = self.open.get_mut(&id) else { return };
                match command {
                    FetchCommand::WantRoom { tokens } if entry.kind == FetchKind::Prefix => {
                        events.push_back(entry.prefix_room(core, tokens));
                    }
                    FetchCommand::WantRoom { tokens } => {
                        // Without its sequence, its attempt is over, which it is told next.
                        let Some(sequence) = core.sequences.get(&entry.key) else { continue };
                        let (key, samples, arrived) = (entry.key, entry.choices, sequence.arrived);
                        let job = Job { key, kind: Kind::TakeOver, tokens, samples, arrived };
                        if core.scheduler.add(job) == Added::QueueFull {
                            core.fail(id.0, id.1, Failure::QueueFull, QUEUE_FULL);
                            entry.cancelled = true;
                            events.push_back(FetchEvent::Cancel);
                        }
                    }
                    FetchCommand::Inquire => {
                        core.send(entry.owner, PeerBody::Expect { request: id.0, epoch: id.1 });
                    }
                    FetchCommand::Read(pieces) => events.extend(self.read(core, id, pieces)),
                    FetchCommand::CancelReads => {
                        entry.cancelling = true;
                        entry.unposted.clear();
                        entry.transfers.iter().for_each(|&transfer| core.transport.cancel(transfer));
                        if entry.transfers.is_empty() {
                            events.push_back(FetchEvent::Quiesced);
                        }
                    }
                    FetchCommand::Send(body) => {
                        if let PeerBody::Release { lease } = body {
                            let (worker, request) = (&core.config.name, id.0);
                            tracing::trace!(target: "timeline", worker, %request, %lease, "release sent");
                        }
                        core.send(entry.owner, body);
                    }
                    FetchCommand::Start { .. } if entry.kind == FetchKind::Prefix => entry.prefix_came(core, now),
                    FetchCommand::Start { first } => {
                        declared::handoffs(entry.lane, HandoffResult::Taken).increment(1);
                        tracing::trace!(target: "timeline", worker = core.config.name, request = %id.0, "taken over");
                        if let Some(completed) = entry.completed {
                            declared::exposed_transfer(entry.lane).record(now.since(completed).as_secs_f64());
                        }
                        core.fetched_prompt(entry.key, &entry.missing);
                        core.start(entry.key, &first);
                    }
                    FetchCommand::Fail(_) if entry.kind == FetchKind::Prefix => entry.count(core, PrefixResult::Failed),
                    FetchCommand::Fail(error) => {
                        let result = match error {
                            FetchError::TimedOut { .. } | FetchError::Deadline => HandoffResult::TimedOut,
                            _ => HandoffResult::Lapsed,
                        };
                        declared::handoffs(entry.lane, result).increment(1);
                        let detail = format!("the handoff from worker {} failed: {error}", entry.owner);
                        core.fail_by(entry.fault(error), id.0, id.1, error.failure(), detail);
                    }
                    FetchCommand::Free => core.kv.close(entry.key),
                    FetchCommand::Done if entry.kind == FetchKind::Prefix => {
                        let (key, came) = (entry.key, entry.came.take());
                        self.forget(core, id);
                        core.close(key);
                        core.queue(id.0, id.1);
                        if let Some((blocks, took)) = came {
                            core.brought(key, blocks, took);
                        }
                    }
                    FetchCommand::Done => {
                        if entry.cancelled {
                            declared::handoffs(entry.lane, HandoffResult::Cancelled).increment(1);
                        }
                        self.forget(core, id);
                    }
                }
            }
        }
    }

    fn forget(&mut self, core: &mut WorkerState, id: (RequestId, Epoch)) {
        if let Some(entry) = self.open.remove(&id) {
            // If it has no room yet it needs none.
            core.scheduler.remove(entry.key);
            entry.due.map(|at| self.deadlines.remove(&(at, id)));
            match entry.machine.lease().map(|lease| (entry.owner, lease)) {
                // A new life of the owner counts its leases anew: the id may be another fetch's by now.
                Some(lease) if self.leases.get(&lease) == Some(&id) => drop(self.leases.remove(&lease)),
                Some(_) => {}
                None => self.takes_none(id),
            }
        }
    }

    /// Gives an offer back that came early. Its lease is over from now on, so that a copy of it must not be taken
    /// either.
    fn give_back(&mut self, core: &mut WorkerState, early: Early) {
        self.takes_none((early.offer.request, early.offer.epoch));
        core.send(early.from, PeerBody::Release { lease: early.offer.lease });
    }

    /// The attempt takes no offer from now on.
    fn takes_none(&mut self, id: (RequestId, Epoch)) {
        if self.over.len() == OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back(id);
    }
}

fn note_deadline(deadlines: &mut BTreeSet<(Time, (RequestId, Epoch))>, id: (RequestId, Epoch), entry: &mut Entry) {
    let due = entry.machine.next_deadline();
    let before = std::mem::replace(&mut entry.due, due);
    if due != before {
        before.map(|at| deadlines.remove(&(at, id)));
        due.map(|at| deadlines.insert((at, id)));
    }
}

/// Whether a read that was not begun is this worker's own failure, and not one of who offered what is not there.
fn is_own(error: &ReadError) -> bool {
    match error {
        ReadError::NotConnected => false,
        ReadError::Prepare(error) => {
            !matches!(error, PrepareError::NoRegion { peer: Some(_), .. } | PrepareError::OutOfBounds { .. })
        }
        ReadError::Post(_) => true,
    }
}

/// Settings of a machine that waits for so long.
fn config(core: &WorkerState, wait_max: Duration) -> FetchConfig {
    FetchConfig {
        layout: core.config.layout.fingerprint(),
        block_tokens: core.config.layout.block_tokens,
        wait_max,
        answer_max: core.config.answer_wait,
        release_retry: core.config.release_retry,
    }
}

/// The batches of one transfer for `pieces`: whole records of what is ready, and layer by layer what a step still
/// writes.
fn batches(layout: &KvLayout, pieces: &[Piece]) -> Vec<ReadBatch> {
    let mut by_step: BTreeMap<Option<StepId>, Vec<&Piece>> = BTreeMap::new();
    for piece in pieces {
        by_step.entry(piece.step).or_default().push(piece);
    }
    let mut all = Vec::new();
    for (step, pieces) in by_step {
        // In the order in which layers are written; a ready record is one piece of all its layers.
        let mut batches: Vec<(u64, usize, u64, usize)> = Vec::new();
        for (group, shape) in layout.groups.iter().enumerate() {
            match step {
                None => batches.push((0, group, 0, layout.record_bytes(group))),
                Some(step) => batches.extend(shape.layers.iter().enumerate().map(|(index, &layer)| {
                    let slice = layout.slice_range(group, index);
                    (ProgressWord::mark(step, layer), group, slice.start as u64, slice.len())
                })),
            }
        }
        batches.sort_unstable();
        for (gate, group, offset, len) in batches {
            let record = layout.record_bytes(group) as u64;
            let at = |block: domain::BlockId| u64::from(block.0) * record + offset;
            let copies = pieces.iter().filter(|piece| usize::from(piece.group.0) == group);
            let copies: Vec<Copy> = copies.map(|piece| Copy { from: at(piece.from), to: at(piece.to) }).collect();
            if !copies.is_empty() {
                let region = RegionId(group as u32);
                all.push(ReadBatch { source: region, destination: region, len, gate, copies: copies.into() });
            }
        }
    }
    all
}
