//! The machine of a worker, without its thread, clock, device and network: a test says what time it is and when a
//! step ends, and sees everything that was planned and said.

use domain::handoff::{Offer, OfferedGroup, PeerBody, PeerMessage};
use domain::plan::{Outputs, Sampled, StepOutput, StepPlan};
use domain::session::{Assignment, FromWorker, PeerInfo, ToWorker};
use domain::{
    BlockId, Epoch, Generation, Incarnation, KvLayout, LeaseId, ProgressWord, RequestId, StepId, Time, Token, WorkerId,
};
use engine::check::Checker;
use engine::device::{Device, DeviceLimits, SubmitError};
use kv_manager::{EvictionPolicy, Quotas, Watermarks};
use scheduler::SchedulerConfig;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transport::{AgentEvent, Lane, Memory, ReadBatch, SendError, TransferId};
use worker::{Inbound, Machine, ReadError, Role, SessionId, Transport, WorkerConfig};

use crate::cluster::Asked;

/// The worker.
pub const SELF: WorkerId = WorkerId(1);
/// The peer that it hands off to, or that hands off to it. Its life is the first.
pub const PEER: WorkerId = WorkerId(2);
/// The longest offer.
pub const OFFER_MAX: Duration = Duration::from_secs(60);
/// How long a reader waits for an offer.
pub const HANDOFF_WAIT: Duration = Duration::from_secs(30);
/// A router that says nothing for so long is lost.
pub const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Room for so many messages is made at the beginning.
const MESSAGES: usize = 4096;
/// Blocks of each KV group's pool.
pub const BLOCKS: u32 = 16_384;
const SESSION: SessionId = SessionId(1);
const VOCABULARY: u32 = 1000;

/// What the machine did, and what it will be told. Messages are kept as they come: whoever counts what a machine
/// allocates counts nothing of the rig's.
#[derive(Default)]
struct Notes {
    said: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    running: Option<Arc<StepPlan>>,
    ended: VecDeque<StepOutput>,
    /// What comes of a read. Nobody is connected, unless a test says otherwise.
    reads: Option<Result<TransferId, ReadError>>,
    /// The connection to the peer was ended.
    disconnected: bool,
}

type Shared = Arc<Mutex<Notes>>;

fn notes(shared: &Shared) -> MutexGuard<'_, Notes> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine, and the time.
pub struct Rig {
    /// It.
    pub machine: Machine,
    /// What time it is told.
    pub now: Time,
    /// What readers of its memory see of its steps.
    pub word: ProgressWord,
    layers: u16,
    shared: Shared,
}

impl Rig {
    /// A machine with a session to a router, and room for everything.
    pub fn new(role: impl Role, layout: KvLayout) -> Self {
        let shared = Shared::default();
        notes(&shared).said.reserve(MESSAGES);
        notes(&shared).sent.reserve(MESSAGES);
        let limits = DeviceLimits {
            rows_max: 1024,
            outputs_max: 1024,
            context_max: 1 << 20,
            blocks: vec![BLOCKS; layout.groups.len()],
            slots_max: 1024,
        };
        let config = config(&layout, &limits);
        let (layers, word) = (layout.layers() as u16, ProgressWord::new());
        let checker = Checker::new(layout.clone(), limits.clone(), VOCABULARY as usize);
        let card = Card { layout, limits, checker, word: word.clone(), shared: shared.clone() };
        let machine = Machine::new(config, Box::new(role), Box::new(card), Box::new(Wire(shared.clone())));
        let machine = machine.expect("the settings of the scheduler agree");
        let mut rig = Self { machine, now: Time::ZERO, word, layers, shared: shared.clone() };
        let said = shared.clone();
        let send = Box::new(move |bytes: Vec<u8>| {
            notes(&said).said.push(bytes);
            Ok(())
        });
        rig.handle(Inbound::Opened { session: SESSION, send, ended: Arc::default() });
        rig.turn();
        rig
    }

    /// Something happens.
    pub fn handle(&mut self, event: Inbound) {
        assert!(self.machine.handle_event(self.now, event).is_continue(), "no test shuts it down");
    }

    /// A router says something.
    pub fn tell(&mut self, message: &ToWorker) {
        self.handle(Self::told(message));
    }

    /// What a router says, as it arrives.
    pub fn told(message: &ToWorker) -> Inbound {
        Inbound::Session { session: SESSION, bytes: proto::session::encode_to_worker(message) }
    }

    /// A router begins an attempt.
    pub fn submit(&mut self, request: &Asked, assignment: Assignment) {
        self.tell(&ToWorker::Submit(request.submit(assignment)));
    }

    /// The peer says something.
    pub fn hear(&mut self, body: PeerBody) {
        let message =
            PeerMessage { from: PEER, from_incarnation: Incarnation(1), to_incarnation: Some(Incarnation(1)), body };
        let bytes = proto::handoff::encode(&message);
        self.handle(Inbound::Agent(AgentEvent::Message { from: PEER, bytes }));
    }

    /// What the peer says to offer all of the first attempt at request 1, whose prompt has so many tokens: its blocks
    /// are those from number 0 on, and are ready.
    pub fn offer(&self, lease: LeaseId, tokens: u32) -> PeerBody {
        let layout = &self.machine.core().config.layout;
        let blocks = (0..tokens.div_ceil(layout.block_tokens)).map(|block| (BlockId(block), Generation(1))).collect();
        PeerBody::Offer(Offer {
            request: RequestId(1),
            epoch: Epoch(1),
            lease,
            duration: OFFER_MAX,
            layout: layout.fingerprint(),
            tokens,
            ready: tokens,
            groups: vec![OfferedGroup { first: 0, blocks }],
        })
    }

    /// The loop has its turn.
    pub fn turn(&mut self) {
        self.machine.turn(self.now);
    }

    /// Nothing happens for so long, and the loop has its turns.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.machine.next_deadline(self.now).max(self.now + Duration::from_micros(1)).min(until);
            self.turn();
        }
    }

    /// The whole process stands still for so long. Then it is up to the test what is heard first.
    pub fn stand_still(&mut self, pause: Duration) {
        self.now = self.now + pause;
    }

    /// The step that runs.
    pub fn running(&self) -> Option<Arc<StepPlan>> {
        notes(&self.shared).running.clone()
    }

    /// The step that runs ends well, and the loop has its turn. `false`: none runs.
    pub fn step(&mut self) -> bool {
        let runs = self.finish();
        if runs {
            self.see();
        }
        runs
    }

    /// The step that runs ends well, and the loop has not seen it. `false`: none runs.
    pub fn finish(&mut self) -> bool {
        let Some(plan) = self.running() else { return false };
        for layer in 0..self.layers {
            self.word.raise(plan.step, layer);
        }
        let samples = plan.spans.iter().flat_map(|span| &span.samples);
        let sampled = samples.map(|sample| Sampled { key: sample.key, token: token(sample.index), logprobs: None });
        self.end_step(plan.step, Ok(sampled.collect()));
        true
    }

    /// The loop sees that a step has ended, and has its turn.
    pub fn see(&mut self) {
        self.handle(Inbound::StepEnded);
        self.turn();
    }

    /// The step that runs fails as a whole once so many layers are written; the loop sees that, and has not had
    /// its turn.
    pub fn fail_step(&mut self, layers: u16) {
        let plan = self.running().expect("a step runs");
        for layer in 0..layers {
            self.word.raise(plan.step, layer);
        }
        self.end_step(plan.step, Err("the test says so".to_owned()));
        self.handle(Inbound::StepEnded);
    }

    fn end_step(&mut self, step: StepId, sampled: Result<Vec<Sampled>, String>) {
        let time = Duration::from_millis(1);
        let outputs = sampled.map(|sampled| Outputs { sampled, ..Outputs::default() });
        let output = StepOutput::new(step, outputs, time, time);
        let mut notes = notes(&self.shared);
        notes.running = None;
        notes.ended.push_back(output);
    }

    /// What comes of reads from now on.
    pub fn on_read(&mut self, outcome: Result<TransferId, ReadError>) {
        notes(&self.shared).reads = Some(outcome);
    }

    /// Whether the machine had the connection to the peer ended.
    pub fn has_disconnected(&self) -> bool {
        notes(&self.shared).disconnected
    }

    /// What was said to the router since it was asked last, but for reports.
    pub fn said(&mut self) -> Vec<FromWorker> {
        let said = notes(&self.shared).said.split_off(0);
        let said = said.iter().map(|bytes| proto::session::decode_from_worker(bytes).expect("it speaks the protocol"));
        said.filter(|message| !matches!(message, FromWorker::Report(_))).collect()
    }

    /// What was said to the peer since it was asked last.
    pub fn sent(&mut self) -> Vec<PeerBody> {
        let sent = notes(&self.shared).sent.split_off(0);
        sent.iter().map(|bytes| proto::handoff::decode(bytes).expect("it speaks the protocol").body).collect()
    }
}

fn token(index: u32) -> Token {
    index % VOCABULARY
}

fn config(layout: &KvLayout, limits: &DeviceLimits) -> WorkerConfig {
    WorkerConfig {
        id: SELF,
        incarnation: Incarnation(1),
        name: "rig".to_owned(),
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
            step_tokens_max: 1024,
            chunk_tokens: 1024,
            running_max: 512,
            waiting_max: 1024,
            block_tokens: layout.block_tokens,
            samples_max: 1024,
        },
        handoff_wait: HANDOFF_WAIT,
        answer_wait: Duration::from_secs(2),
        release_retry: Duration::from_millis(100),
        offer_max: OFFER_MAX,
        silence_max: SILENCE_MAX,
        outbox_bytes: worker::OUTBOX_BYTES,
        steps_in_flight: 1,
    }
}

/// A network to one peer, which takes everything.
struct Wire(Shared);

impl Transport for Wire {
    fn introduce(&mut self, _peer: PeerInfo) {}

    fn connect(&mut self, _peer: WorkerId) {}

    fn disconnect(&mut self, _peer: WorkerId) {
        notes(&self.0).disconnected = true;
    }

    fn send(&mut self, to: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        assert_eq!(to, PEER, "there is nobody else");
        notes(&self.0).sent.push(bytes);
        Ok(())
    }

    fn read(&mut self, _from: WorkerId, _batches: Vec<ReadBatch>) -> Result<(TransferId, Lane), ReadError> {
        let outcome = notes(&self.0).reads.clone().unwrap_or(Err(ReadError::NotConnected));
        outcome.map(|transfer| (transfer, Lane::Tcp))
    }

    fn cancel(&mut self, _id: TransferId) {}
}

/// A device that checks plans, and does nothing until the test ends its step.
struct Card {
    layout: KvLayout,
    limits: DeviceLimits,
    checker: Checker,
    word: ProgressWord,
    shared: Shared,
}

impl Device for Card {
    fn layout(&self) -> &KvLayout {
        &self.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn vocab(&self) -> usize {
        VOCABULARY as usize
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        self.checker.take(&plan)?;
        notes(&self.shared).running = Some(plan);
        Ok(())
    }

    fn poll(&mut self) -> Option<StepOutput> {
        notes(&self.shared).ended.pop_front()
    }

    fn lost(&self) -> Option<&str> {
        None
    }

    fn set_waker(&mut self, _waker: Box<dyn Fn() + Send + Sync>) {}

    fn progress(&self) -> ProgressWord {
        self.word.clone()
    }

    fn pool(&self, _group: usize) -> Arc<dyn Memory> {
        unreachable!("no byte is moved")
    }

    fn batch_invariant(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "a card of paper".to_owned()
    }
}
