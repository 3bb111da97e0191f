//! A worker's process: the real machine of its role, with all that it consists of. What is played is what lies
//! around that: the device with its memory, the transport, and the router's end of its session.
//!
//! A slice of a block in memory is the first token of that block, so that it is known whose it is.

use crate::action::Seen;
use crate::scope::{BEFORE, BLOCK, FIRST, NEXT, OWNER, Scope, Source};
use decode_worker::Decode;
use domain::handoff::{Offer, PeerBody, PeerMessage};
use domain::plan::{BlockTable, Input, Outputs, Sampled, StepOutput, StepPlan};
use domain::planted_bugs::{self, Bug};
use domain::session::{Assignment, Holder, PeerAddress, PeerInfo, Role, Submit, ToWorker};
use domain::{
    Choice, Dtype, Encoding, Epoch, Incarnation, KvGroup, KvKind, KvLayout, LeaseId, ModelLayout, ProgressWord,
    RequestId, SamplingParams, SeqKey, Time, Token, WorkerId,
};
use engine::device::{Device, DeviceLimits, STEPS_IN_FLIGHT_MAX, SubmitError};
use engine::slots::DeviceSlots;
use kv_manager::{EvictionPolicy, FetchState, Quotas, Watermarks};
use prefill_worker::Prefill;
use scheduler::SchedulerConfig;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transport::{
    AgentEvent, Completion, Lane, Memory, ReadBatch, SendError, TransferError, TransferId, TransferReport,
};
use worker::{Fetches, Inbound, Machine, Offers, PROMPT, ReadError, SessionId, Transport, WorkerConfig, WorkerState};

/// Layer slices of a block.
pub(crate) const LAYERS: u16 = 2;
/// How long a lease lives without renewal.
const LEASE: Duration = Duration::from_millis(30);
/// How long a fetch waits for anything. Longer than two of its timers' intervals.
const WAIT: Duration = Duration::from_millis(25);
/// How often a release is repeated.
const RELEASE_RETRY: Duration = Duration::from_millis(10);
/// Long after everything.
const LONG: Duration = Duration::from_secs(3600);
/// The token that every step samples.
const SAMPLED: Token = 5;
/// No worker gives more leases than this.
const LEASES_MAX: u64 = 16;
const SESSION: SessionId = SessionId(1);
const EPOCH: Epoch = Epoch(1);

/// Something that happens at a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The message of that number comes.
    Message(u32),
    Submit(RequestId),
    Cancel(RequestId),
    /// The router says that a peer is there, in this life.
    Introduced(WorkerId, Incarnation),
    /// The connection to a peer is lost.
    Lost(WorkerId),
    /// The step loop has its turn.
    Turn,
    /// The next lease has lapsed, but the step loop is busy and does not see it yet.
    Lapse,
    /// The next timer of a fetch fires.
    Tick,
    /// All fetches waited in vain.
    TimeOut,
    /// The device has written the next layer of its step.
    WriteLayer,
    StepEnds,
    StepFails,
    /// The next slice of a read is there; `None`: the memory that it comes from is gone.
    Arrives {
        read: u8,
        slice: Option<Token>,
    },
    /// A cancelled read has ended.
    Quiesces(u8),
}

/// A slice to read.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Slice {
    /// The owner's word must have reached this.
    pub(crate) gate: u64,
    /// Block and layer there, and here.
    pub(crate) from: (u32, u16),
    to: (u32, u16),
    /// What it should be.
    pub(crate) expected: Token,
}

/// A posted read.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Read {
    id: TransferId,
    pub(crate) request: RequestId,
    pub(crate) owner: WorkerId,
    /// The life of the owner whose memory it reads.
    pub(crate) life: Incarnation,
    /// The next one last.
    slices: Vec<Slice>,
    pub(crate) cancelled: bool,
}

impl Read {
    /// What is read next: slice by slice, as transports do.
    pub(crate) fn next(&self) -> Slice {
        *self.slices.last().expect("it has not ended")
    }
}

/// What a process looks like from outside.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) worker: WorkerId,
    pub(crate) life: Incarnation,
    /// The last life of each peer that it heard of.
    pub(crate) heard: BTreeMap<WorkerId, Incarnation>,
    pub(crate) memory: Vec<[Token; LAYERS as usize]>,
    /// The progress word.
    pub(crate) word: u64,
    /// Layers that the step in flight has written; `None`: none is.
    pub(crate) running: Option<u16>,
    /// Another step waits behind it.
    pub(crate) has_behind: bool,
    pub(crate) reads: Vec<Read>,
    /// Fetches that are not being cancelled.
    pub(crate) fetching: Vec<RequestId>,
    /// A fetch waits for some time.
    pub(crate) timed: bool,
    /// A lease will lapse.
    pub(crate) lapses: bool,
    /// A lease has lapsed, or a fetch's time is over, which it has not seen.
    pub(crate) overdue: bool,
    pub(crate) alive: Vec<LeaseId>,
    /// Nothing is left of anything.
    pub(crate) quiet: bool,
}

/// What came of an event.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) sent: Vec<(WorkerId, PeerMessage)>,
    pub(crate) seen: Vec<Seen>,
    /// Time that passed at the worker before it did anything, and afterwards.
    pub(crate) passed: [Duration; 2],
    /// An invariant of the process itself that is violated.
    pub(crate) broken: Option<String>,
}

/// What machine and played surroundings share.
#[derive(Default)]
struct Notes {
    sent: Vec<(WorkerId, PeerMessage)>,
    posted: Vec<(TransferId, WorkerId, Vec<ReadBatch>)>,
    cancelled: Vec<TransferId>,
    /// Transfers that have not ended. What has ended is forgotten by everybody, so that its number may be another's.
    transfers: BTreeSet<u64>,
    submitted: VecDeque<Arc<StepPlan>>,
    ended: VecDeque<StepOutput>,
    /// Turns in which leases were renewed, and the tick count of the last: an owner asks of that only whether it
    /// rose, so that renewals are counted instead.
    renewals: u64,
    ticks: u64,
}

#[derive(Clone, Default)]
struct Played(Arc<Mutex<Notes>>);

impl Played {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Played {
    fn introduce(&mut self, _: PeerInfo) {}

    fn connect(&mut self, _: WorkerId) {}

    fn send(&mut self, to: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        let mut message = proto::handoff::decode(&bytes).expect("a worker speaks the protocol");
        let mut notes = self.notes();
        if let PeerBody::Renew { ticks, .. } = &mut message.body {
            notes.renewals += u64::from(*ticks != notes.ticks);
            notes.ticks = *ticks;
            *ticks = notes.renewals;
        }
        notes.sent.push((to, message));
        Ok(())
    }

    fn read(&mut self, from: WorkerId, batches: Vec<ReadBatch>) -> Result<(TransferId, Lane), ReadError> {
        let mut notes = self.notes();
        let id = (0..).find(|id| notes.transfers.insert(*id)).expect("one is free");
        notes.posted.push((TransferId(id), from, batches));
        Ok((TransferId(id), Lane::Tcp))
    }

    fn cancel(&mut self, id: TransferId) {
        self.notes().cancelled.push(id);
    }
}

/// The device of a machine.
struct Card {
    played: Played,
    layout: KvLayout,
    limits: DeviceLimits,
    word: ProgressWord,
}

impl Device for Card {
    fn layout(&self) -> &KvLayout {
        &self.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn vocab(&self) -> usize {
        64
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        self.played.notes().submitted.push_back(plan);
        Ok(())
    }

    fn poll(&mut self) -> Option<StepOutput> {
        self.played.notes().ended.pop_front()
    }

    fn lost(&self) -> Option<&str> {
        None
    }

    fn set_waker(&mut self, _: Box<dyn Fn() + Send + Sync>) {}

    fn progress(&self) -> ProgressWord {
        self.word.clone()
    }

    fn pool(&self, _: usize) -> Arc<dyn Memory> {
        unreachable!("its memory is played")
    }

    fn batch_invariant(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "played".to_owned()
    }
}

/// A worker's process.
pub(crate) struct Process {
    scope: Scope,
    worker: WorkerId,
    life: Incarnation,
    now: Time,
    machine: Machine,
    played: Played,
    word: ProgressWord,
    layout: KvLayout,
    heard: BTreeMap<WorkerId, Incarnation>,
    memory: Vec<[Token; LAYERS as usize]>,
    /// The request for which each block was read from another worker, if it was.
    read_for: Vec<Option<RequestId>>,
    /// What the device has of sequences.
    slots: DeviceSlots,
    /// The step that runs, and how many layers of it are written.
    running: Option<(Arc<StepPlan>, u16)>,
    /// The step behind it.
    behind: Option<Arc<StepPlan>>,
    reads: Vec<Read>,
}

impl Process {
    /// A life of a worker begins.
    pub(crate) fn new(scope: Scope, worker: WorkerId, life: Incarnation) -> Self {
        let group = KvGroup { layers: (0..LAYERS).collect(), kind: KvKind::of_heads(1, 2), window: None };
        let block_tokens = BLOCK as u32;
        let layout = KvLayout::whole(ModelLayout {
            block_tokens,
            dtype: Dtype::F32,
            encoding: Encoding::Exact,
            groups: vec![group],
        });
        let blocks = scope.blocks(worker);
        let limits = DeviceLimits { rows_max: 64, outputs_max: 8, context_max: 64, blocks: vec![blocks], slots_max: 8 };
        let role: Box<dyn worker::Role> = if scope.is_reader(worker) { Box::new(Decode) } else { Box::new(Prefill) };
        let config = WorkerConfig {
            id: worker,
            incarnation: life,
            name: worker.to_string(),
            layout: layout.clone(),
            blocks: limits.blocks.clone(),
            weights: [0; 32],
            reserve_blocks: vec![0; layout.groups.len()],
            eviction: EvictionPolicy::Lru,
            watermarks: Watermarks::default(),
            pinned_percent: 0,
            quotas: Quotas::default(),
            park_after: None,
            scheduler: SchedulerConfig {
                step_tokens_max: 16,
                chunk_tokens: scope.chunk(),
                running_max: 8,
                waiting_max: 8,
                block_tokens,
                samples_max: 8,
            },
            handoff_wait: WAIT,
            answer_wait: WAIT,
            release_retry: RELEASE_RETRY,
            offer_max: LONG,
            silence_max: LONG,
            outbox_bytes: worker::OUTBOX_BYTES,
            steps_in_flight: STEPS_IN_FLIGHT_MAX,
        };
        let slots = DeviceSlots::new(limits.slots_max, layout.groups.len());
        let (played, word) = (Played::default(), ProgressWord::new());
        let card = Card { played: played.clone(), layout: layout.clone(), limits, word: word.clone() };
        let (card, wire) = (Box::new(card), Box::new(played.clone()));
        let machine = Machine::new(config, role, card, wire).expect("the scheduler's settings agree");
        let mut process = Self {
            scope,
            worker,
            life,
            now: Time::ZERO,
            machine,
            played,
            word,
            layout,
            heard: BTreeMap::new(),
            memory: vec![[0; LAYERS as usize]; blocks as usize],
            read_for: vec![None; blocks as usize],
            slots,
            running: None,
            behind: None,
            reads: Vec::new(),
        };
        process.begin();
        process
    }

    /// It has its router, is told who else is there, and has computed before what it is to have cached. What is
    /// asked of it before anything else happens waits for its first turn.
    fn begin(&mut self) {
        let (scope, own) = (self.scope, self.worker);
        let send = Box::new(|_| Ok(()));
        self.handle(Inbound::Opened { session: SESSION, send, ended: Arc::default() });
        if self.life != FIRST {
            return;
        }
        if self.worker == OWNER && self.scope.source.is_computed() {
            let requests = scope.requests().chain([NEXT]);
            requests.for_each(|request| self.tell(&ToWorker::Submit(self.submit(request))));
        }
        for id in scope.workers().filter(|&id| id != own) {
            self.introduced(id, FIRST);
        }
        if self.scope.holder() == Some(self.worker) {
            self.tell(&ToWorker::Submit(self.submit(BEFORE)));
            self.turn();
            let mut out = Outcome::default();
            self.settle(&mut out);
            while self.running.is_some() {
                self.run(&mut out);
            }
            assert!(out.broken.is_none() && out.sent.is_empty(), "{out:?}");
        }
    }

    /// What this worker is asked for.
    fn submit(&self, request: RequestId) -> Submit {
        let scope = self.scope;
        let (assignment, max_tokens) = match (scope.is_reader(self.worker), scope.source) {
            (true, Source::Cached) => (Assignment::Whole, 1),
            (true, _) => (Assignment::Decode { prefill: OWNER }, 2),
            // Nobody takes anything over.
            (false, _) if [NEXT, BEFORE].contains(&request) => (Assignment::Prefill { decode: WorkerId(1) }, 1),
            (false, _) => (Assignment::Prefill { decode: scope.reader(request) }, 2),
        };
        let holder = scope.holder().filter(|&holder| holder != self.worker && scope.requests().any(|of| of == request));
        Submit {
            request,
            epoch: EPOCH,
            assignment,
            choices: vec![(Choice(0), [].into())],
            prompt: scope.prompt(request).into(),
            params: Arc::new(SamplingParams { max_tokens, ..SamplingParams::default() }),
            seed: 0,
            deadline: LONG,
            lease: LEASE,
            tenant: String::new(),
            adapter: None,
            holder: holder.map(|worker| Holder { worker, incarnation: FIRST, tokens: BLOCK as u32 }),
            trace: None,
            timed: false,
        }
    }

    fn core(&self) -> &WorkerState {
        self.machine.core()
    }

    fn offers(&self) -> &Offers {
        self.machine.offers()
    }

    fn fetches(&self) -> &Fetches {
        self.machine.fetches()
    }

    fn handle(&mut self, event: Inbound) {
        assert!(self.machine.handle_event(self.now, event).is_continue(), "nobody ends it");
    }

    fn tell(&mut self, message: &ToWorker) {
        self.handle(Inbound::Session { session: SESSION, bytes: proto::session::encode_to_worker(message) });
    }

    fn introduced(&mut self, id: WorkerId, incarnation: Incarnation) {
        let (name, role, address) = (id.to_string(), Role::Prefill, PeerAddress::default());
        self.tell(&ToWorker::Peer(PeerInfo { id, incarnation, name, role, address }));
        self.hear(id, incarnation);
    }

    fn hear(&mut self, peer: WorkerId, life: Incarnation) {
        let known = self.heard.entry(peer).or_insert(life);
        *known = life.max(*known);
    }

    fn turn(&mut self) {
        self.machine.turn(self.now);
    }

    /// Lets it happen. `message`: what the event names by number.
    pub(crate) fn apply(&mut self, event: Event, message: Option<(&PeerMessage, &[u8])>) -> Outcome {
        let (begun, mut out) = (self.now, Outcome::default());
        let mut turn = !self.scope.faults.late_turns;
        match event {
            Event::Message(_) => {
                let (message, bytes) = message.expect("it is there");
                if message.to_incarnation.is_none_or(|life| life == self.life) {
                    self.hear(message.from, message.from_incarnation);
                }
                self.handle(Inbound::Agent(AgentEvent::Message { from: message.from, bytes: bytes.to_vec() }));
            }
            Event::Submit(request) => self.tell(&ToWorker::Submit(self.submit(request))),
            Event::Cancel(request) => self.tell(&ToWorker::Cancel { request, epoch: EPOCH, choice: None }),
            Event::Introduced(peer, life) => self.introduced(peer, life),
            Event::Lost(peer) => {
                self.handle(Inbound::Agent(AgentEvent::Lost { peer, reason: "it was cut".to_owned() }));
            }
            Event::Turn => turn = true,
            Event::Lapse => {
                self.now = self.now.max(self.core().kv.next_deadline().expect("a lease is alive"));
                turn = false;
            }
            Event::Tick => {
                self.now = self.now.max(self.fetches().next_deadline(self.core()).expect("a timer runs"));
                turn = true;
            }
            Event::TimeOut => {
                self.now = self.now + WAIT;
                turn = true;
            }
            Event::WriteLayer => {
                self.write_layer();
                turn = false;
            }
            Event::StepEnds => self.end_step(true, &mut out),
            Event::StepFails => self.end_step(false, &mut out),
            Event::Arrives { read, slice } => self.arrive(usize::from(read), slice),
            Event::Quiesces(read) => self.end_read(usize::from(read), Err(TransferError::Cancelled)),
        }
        let passed = self.now.since(begun);
        if turn {
            self.turn();
        }
        self.settle(&mut out);
        out.passed = [passed, self.now.since(begun + passed)];
        if out.broken.is_none() {
            out.broken = self.check();
        }
        out
    }

    // -- the device

    /// Looks at what the machine asked of its device and its transport. Steps of readers, and of later lives, of
    /// which nobody reads, end at once.
    fn settle(&mut self, out: &mut Outcome) {
        loop {
            let mut notes = self.played.notes();
            let (posted, cancelled) = (std::mem::take(&mut notes.posted), std::mem::take(&mut notes.cancelled));
            let sent = std::mem::take(&mut notes.sent);
            drop(notes);
            for (to, message) in sent {
                if let PeerBody::Offer(offer) = &message.body {
                    self.check_offer(offer, out);
                    // Leases lapse one by one.
                    self.now = self.now + Duration::from_nanos(1);
                }
                out.sent.push((to, message));
            }
            for (id, owner, batches) in posted {
                self.post(id, owner, &batches, out);
            }
            for read in &mut self.reads {
                read.cancelled |= cancelled.contains(&read.id);
            }
            self.begin_step(out);
            if self.running.is_none() || self.worker == OWNER && self.life == FIRST {
                return;
            }
            self.run(out);
        }
    }

    /// The device takes what was submitted, and begins the next step if none runs.
    fn begin_step(&mut self, out: &mut Outcome) {
        let submitted = std::mem::take(&mut self.played.notes().submitted);
        for plan in self.behind.take().into_iter().chain(submitted) {
            if self.running.is_none() {
                self.slots.take_over(&plan);
                self.check_plan(&plan, out);
                self.running = Some((plan, 0));
            } else {
                assert!(self.behind.replace(plan).is_none(), "two steps are in flight at most");
            }
        }
    }

    /// The step in flight is done in one go.
    fn run(&mut self, out: &mut Outcome) {
        (0..LAYERS).for_each(|_| self.write_layer());
        self.end_step(true, out);
        self.turn();
        // A step that begins now is begun by whoever asked for this one.
        self.begin_step(out);
        if self.running.is_some() {
            self.run(out);
        }
    }

    fn write_layer(&mut self) {
        let Some((plan, layer)) = &mut self.running else { unreachable!("a step runs") };
        let at = usize::from(*layer);
        for copy in &plan.copies {
            self.memory[copy.to.0 as usize][at] = self.memory[copy.from.0 as usize][at];
        }
        for span in &plan.spans {
            for (position, input) in (span.start as usize..).zip(&span.inputs) {
                let token = if let Input::Token(token) = *input { token } else { SAMPLED };
                if position.is_multiple_of(BLOCK) {
                    let block = block_of(self.slots.table(span.slot, 0), position);
                    (self.memory[block][at], self.read_for[block]) = (token, None);
                }
            }
        }
        self.word.raise(plan.step, *layer);
        *layer += 1;
    }

    fn end_step(&mut self, succeeds: bool, out: &mut Outcome) {
        let (plan, _) = self.running.take().expect("a step runs");
        let sampled = plan.spans.iter().flat_map(|span| &span.samples);
        let sampled = sampled.map(|sample| Sampled { key: sample.key, token: SAMPLED, logprobs: None }).collect();
        if succeeds {
            let ends = plan.spans.iter().filter(|span| span.key.choice == PROMPT && !span.samples.is_empty());
            out.seen.extend(ends.map(|span| Seen::Wrote { request: span.key.request }));
        }
        let outputs = Outputs { sampled, ..Outputs::default() };
        let outputs = if succeeds { Ok(outputs) } else { Err("it was made to fail".to_owned()) };
        let output = StepOutput::new(plan.step, outputs, Duration::ZERO, Duration::ZERO);
        let skips = output.sampled.is_err() && !planted_bugs::is(Bug::SuccessorRuns);
        let behind = self.behind.take_if(|_| skips).map(|plan| {
            self.slots.take_over(&plan);
            let sampled = Err("the step before it failed".to_owned());
            StepOutput { step: plan.step, sampled, ..output.clone() }
        });
        self.played.notes().ended.extend([output].into_iter().chain(behind));
        self.handle(Inbound::StepEnded);
    }

    // -- reads

    fn post(&mut self, id: TransferId, owner: WorkerId, batches: &[ReadBatch], out: &mut Outcome) {
        let fetch = self.fetches().progress().find(|fetch| fetch.transfers.contains(&id));
        let Some(request) = fetch.map(|fetch| fetch.request) else {
            out.broken = Some("a fetch is over and still reads".to_owned());
            return;
        };
        let tables = self.core().kv.tables(key_of(request));
        let prompt = self.scope.prompt(request);
        let (record, slice) = (self.layout.record_bytes(0) as u64, self.layout.slice_range(0, 0).len() as u64);
        let place = |byte: u64| ((byte / record) as u32, (byte % record / slice) as u16);
        let mut slices = Vec::new();
        for batch in batches {
            for copy in (0..batch.copies.count()).map(|at| batch.copies.get(at).expect("it is one of them")) {
                for offset in (0..batch.len as u64).step_by(slice as usize) {
                    let to = place(copy.to + offset);
                    let number = tables[0].blocks.iter().position(|block| block.0 == to.0);
                    let number = number.expect("it is read into memory of its own");
                    let (from, expected) = (place(copy.from + offset), prompt[number * BLOCK]);
                    slices.push(Slice { gate: batch.gate, from, to, expected });
                }
            }
        }
        slices.reverse();
        // Of a life that it does not know it has no connection to read over.
        let life = self.heard.get(&owner).copied().unwrap_or(FIRST);
        self.reads.push(Read { id, request, owner, life, slices, cancelled: false });
    }

    fn arrive(&mut self, read: usize, slice: Option<Token>) {
        let Some(token) = slice else { return self.end_read(read, Err(TransferError::PeerGone)) };
        let (block, layer) = self.reads[read].slices.pop().expect("it has not ended").to;
        self.memory[block as usize][usize::from(layer)] = token;
        self.read_for[block as usize] = Some(self.reads[read].request);
        if self.reads[read].slices.is_empty() {
            let report = TransferReport {
                lane: Lane::Tcp,
                rails: 1,
                bytes: 0,
                wire_bytes: 0,
                queued: Duration::ZERO,
                wire: Duration::ZERO,
                elapsed: Duration::ZERO,
            };
            self.end_read(read, Ok(report));
        }
    }

    fn end_read(&mut self, read: usize, result: Result<TransferReport, TransferError>) {
        let id = self.reads.remove(read).id;
        self.played.notes().transfers.remove(&id.0);
        self.handle(Inbound::Agent(AgentEvent::Ended(Completion { id, result, runs: Vec::new() })));
    }

    // -- what must be so

    /// What is offered as written is there, and is right.
    fn check_offer(&self, offer: &Offer, out: &mut Outcome) {
        let prompt = self.scope.prompt(offer.request);
        let group = &offer.groups[0];
        for (number, &(block, _)) in (group.first as usize..).zip(&group.blocks) {
            let (slices, expected) = (self.memory[block.0 as usize], prompt[number * BLOCK]);
            if number * BLOCK < offer.ready as usize && slices.iter().any(|&slice| slice != expected) {
                let request = offer.request;
                out.broken = Some(format!("{request} is offered with {slices:?} for {expected} in block {number}"));
            }
        }
    }

    /// What a step goes on from is right.
    fn check_plan(&self, plan: &StepPlan, out: &mut Outcome) {
        for span in &plan.spans {
            let request = span.key.request;
            let sequence = self.core().sequence(span.key).expect("it is computed");
            let table = self.slots.table(span.slot, 0);
            for position in (0..span.start as usize).step_by(BLOCK) {
                let block = block_of(table, position);
                let slices = self.memory[block];
                let expected = sequence.tokens.at(position..position + 1)[0];
                if slices.iter().any(|&slice| slice != expected) {
                    out.broken = Some(format!("{request} starts from {slices:?}, it should be from {expected}"));
                }
                out.seen.extend(self.read_for[block].map(|request| Seen::Started { request }));
            }
            let end = span.start as usize + span.inputs.len();
            for position in (span.start as usize..end).step_by(BLOCK) {
                out.seen.push(Seen::Writes { request, block: block_of(table, position) as u32 });
            }
        }
    }

    /// A destination is not given back while a read may still write into it, and every block is accounted for.
    fn check(&self) -> Option<String> {
        let kv = &self.core().kv;
        for read in &self.reads {
            if !self.fetches().progress().any(|fetch| fetch.transfers.contains(&read.id)) {
                return Some("a fetch is over and still reads".to_owned());
            }
            let key = key_of(read.request);
            let tables = if kv.is_open(key) { kv.tables(key) } else { Vec::new() };
            let holds = |slice: &Slice| tables.iter().any(|of| of.blocks.iter().any(|block| block.0 == slice.to.0));
            if !read.slices.iter().all(holds) {
                return Some("a destination is freed under a read".to_owned());
            }
        }
        // The manager's own check sees this bug before anything comes of it; here its harm is to be found.
        if !planted_bugs::is(Bug::ReuseUnderLease) {
            kv.check();
        }
        None
    }

    // -- what it looks like

    /// Tells processes of one worker and life apart.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.worker, self.life, &self.heard, &self.memory, &self.read_for, &self.reads).hash(&mut hasher);
        self.machine.digest(self.now, &mut hasher);
        (self.word.get(), self.word.raised(), self.played.notes().renewals).hash(&mut hasher);
        self.running.as_ref().map(|(plan, layer)| (plan.step, layer)).hash(&mut hasher);
        self.behind.as_ref().map(|plan| plan.step).hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn view(&self) -> View {
        let (core, fetches) = (self.core(), self.fetches());
        let next = core.kv.next_deadline();
        let due = self.offers().next_deadline(core).into_iter().chain(fetches.next_deadline(core)).min();
        let open = fetches.progress().filter(|fetch| fetch.state != FetchState::Quiescing);
        let sizes = core.sizes().into_iter().chain(self.offers().sizes()).chain(fetches.sizes());
        View {
            worker: self.worker,
            life: self.life,
            heard: self.heard.clone(),
            memory: self.memory.clone(),
            word: self.word.get(),
            running: self.running.as_ref().map(|&(_, layer)| layer),
            has_behind: self.behind.is_some(),
            reads: self.reads.clone(),
            fetching: open.map(|fetch| fetch.request).collect(),
            timed: fetches.next_deadline(core).is_some(),
            lapses: next.is_some_and(|at| at > self.now),
            overdue: due.is_some_and(|at| at <= self.now),
            alive: (1..=LEASES_MAX).map(LeaseId).filter(|&lease| core.kv.is_alive(self.now, lease)).collect(),
            quiet: self.running.is_none() && self.reads.is_empty() && sizes.into_iter().all(|(_, size)| size == 0),
        }
    }
}

fn key_of(request: RequestId) -> SeqKey {
    SeqKey { request, epoch: EPOCH, choice: PROMPT }
}

fn block_of(table: &BlockTable, position: usize) -> usize {
    table.blocks[position / BLOCK - table.first as usize].0 as usize
}
