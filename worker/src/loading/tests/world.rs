//! A worker without thread, device or disk, and what it asked of them.

use crate::config::WorkerConfig;
use crate::inbox::Inbound;
use crate::machine::Machine;
use crate::role::{Refusal, Role};
use crate::sequence::PROMPT;
use crate::sessions::SessionId;
use crate::transport::{ReadError, Transport};
use domain::handoff::{PeerBody, PeerMessage};
use domain::plan::{Outputs, Sampled, StepOutput, StepPlan};
use domain::session::{Assignment, FromWorker, PeerInfo, Submit, ToWorker};
use domain::{
    Choice, Dtype, Encoding, Epoch, GroupId, Incarnation, KvGroup, KvKind, KvLayout, ModelLayout, ProgressWord,
    RequestId, SamplingParams, SeqKey, Tenant, Time, Token, WorkerId,
};
use engine::device::{Device, DeviceLimits, SubmitError};
use kv_manager::tiers::{ReadEnd, Slot, Tier, TierConfig, TierLift, TierRead, TierRecord, TierWrite, WritePolicy};
use scheduler::SchedulerConfig;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tiers::{Record, TierEvent, TierMover, TierParts};
use transport::{AgentEvent, Lane, Memory, ReadBatch, SendError, TransferId};

/// Whose all records are.
pub(super) const TENANT: Tenant = Tenant(77);
const SIZE: u32 = 4;
const SESSION: SessionId = SessionId(1);
/// A sequence that another worker computes.
const HANDOFF: SeqKey = SeqKey { request: RequestId(u64::MAX), epoch: Epoch(1), choice: PROMPT };
/// How often a step ends.
const STEP: Duration = Duration::from_secs(1);
/// How long it took, as the device says: any tier is faster.
pub(super) const ELAPSED: Duration = Duration::from_secs(1000);

/// Computes whatever it is asked for.
struct Whole;

impl Role for Whole {
    fn judge(&self, _: &Submit) -> Result<(), Refusal> {
        Ok(())
    }
}

/// A network that carries nothing but messages.
struct Wire(Arc<Mutex<Notes>>);

impl Transport for Wire {
    fn introduce(&mut self, _: PeerInfo) {}
    fn connect(&mut self, _: WorkerId) {}
    fn cancel(&mut self, _: TransferId) {}

    fn send(&mut self, to: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        let message = proto::handoff::decode(&bytes).expect("it is whole");
        self.0.lock().expect("no test panicked").told.push((to, message.body));
        Ok(())
    }

    fn read(&mut self, _: WorkerId, _: Vec<ReadBatch>) -> Result<(TransferId, Lane), ReadError> {
        Err(ReadError::NotConnected)
    }
}

/// What the worker asked of device and tier, and said.
#[derive(Default)]
pub(super) struct Notes {
    plans: VecDeque<Arc<StepPlan>>,
    /// Prompt tokens computed of each request.
    computed: BTreeMap<u64, u32>,
    /// Tokens computed of all of them.
    pub(super) spans: usize,
    /// Reads that have not ended.
    pub(super) reads: Vec<(SeqKey, TierRead)>,
    pub(super) cancelled: Vec<SeqKey>,
    /// Records that are being lifted, and those that came and are being written.
    pub(super) lifts: Vec<(SeqKey, TierLift)>,
    pub(super) landing: Vec<(SeqKey, TierLift)>,
    /// How long steps take in which no prompt is computed; [`ELAPSED`] where it says nothing.
    pub(super) decode: Option<Duration>,
    said: Vec<FromWorker>,
    /// What other workers were told.
    pub(super) told: Vec<(WorkerId, PeerBody)>,
}

struct Paper {
    layout: KvLayout,
    limits: DeviceLimits,
    notes: Arc<Mutex<Notes>>,
}

impl Device for Paper {
    fn layout(&self) -> &KvLayout {
        &self.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn vocab(&self) -> usize {
        u32::MAX as usize
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        let mut notes = self.notes.lock().expect("no test panicked");
        for span in plan.spans.iter().filter(|span| span.key.choice == PROMPT) {
            *notes.computed.entry(span.key.request.0).or_default() += span.inputs.len() as u32;
        }
        notes.spans += plan.rows();
        notes.plans.push_back(plan);
        Ok(())
    }

    fn poll(&mut self) -> Option<StepOutput> {
        let mut notes = self.notes.lock().expect("no test panicked");
        let plan = notes.plans.pop_front()?;
        let samples = plan.spans.iter().flat_map(|span| &span.samples);
        let sampled = samples.map(|sample| Sampled { key: sample.key, token: 9, logprobs: None }).collect();
        let decodes = plan.spans.iter().all(|span| span.key.choice != PROMPT);
        let elapsed = notes.decode.filter(|_| decodes).unwrap_or(ELAPSED);
        let outputs = Outputs { sampled, ..Outputs::default() };
        Some(StepOutput::new(plan.step, Ok::<_, String>(outputs), elapsed, elapsed))
    }

    fn lost(&self) -> Option<&str> {
        None
    }

    fn set_waker(&mut self, _: Box<dyn Fn() + Send + Sync>) {}

    fn progress(&self) -> ProgressWord {
        ProgressWord::default()
    }

    fn pool(&self, _: usize) -> Arc<dyn Memory> {
        unreachable!("the test moves nothing")
    }

    fn batch_invariant(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "paper".into()
    }
}

struct Drive(Arc<Mutex<Notes>>);

impl TierMover for Drive {
    fn write(&mut self, _: TierWrite) {
        unreachable!("nothing is written");
    }

    fn read(&mut self, key: SeqKey, read: TierRead) {
        self.0.lock().expect("no test panicked").reads.push((key, read));
    }

    fn lift(&mut self, prompt: SeqKey, lift: TierLift) {
        self.0.lock().expect("no test panicked").lifts.push((prompt, lift));
    }

    fn land(&mut self, prompt: SeqKey, lift: TierLift, _: Record) {
        self.0.lock().expect("no test panicked").landing.push((prompt, lift));
    }

    fn cancel(&mut self, key: SeqKey) {
        self.0.lock().expect("no test panicked").cancelled.push(key);
    }
}

pub(super) struct World {
    pub(super) machine: Machine,
    notes: Arc<Mutex<Notes>>,
    pub(super) now: Time,
}

/// Tokens that no prompt with another name has.
pub(super) fn tokens(name: u32, len: u32) -> Vec<Token> {
    (0..len).map(|at| name * 1000 + at).collect()
}

/// A worker with so many blocks of four tokens, and a disk that holds all full blocks of these prompts.
pub(super) fn world(blocks: u32, held: &[Vec<Token>]) -> World {
    world_of(blocks, 64, held)
}

/// The same, where prompts are computed in chunks of so many tokens.
pub(super) fn world_of(blocks: u32, chunk_tokens: u32, held: &[Vec<Token>]) -> World {
    let group = KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 2), window: None };
    let layout = KvLayout::whole(ModelLayout {
        block_tokens: SIZE,
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups: vec![group],
    });
    let limits = DeviceLimits { rows_max: 256, outputs_max: 16, context_max: 256, blocks: vec![blocks], slots_max: 16 };
    let config = WorkerConfig {
        id: WorkerId(11),
        incarnation: Incarnation(1),
        name: "worker".into(),
        layout: layout.clone(),
        blocks: limits.blocks.clone(),
        weights: [0; 32],
        reserve_blocks: vec![0; layout.groups.len()],
        eviction: kv_manager::EvictionPolicy::Lru,
        watermarks: kv_manager::Watermarks::default(),
        pinned_percent: 0,
        quotas: kv_manager::Quotas::default(),
        park_after: None,
        scheduler: SchedulerConfig {
            step_tokens_max: 256,
            chunk_tokens,
            running_max: 16,
            waiting_max: 12,
            block_tokens: SIZE,
            samples_max: 16,
        },
        handoff_wait: Duration::from_secs(60),
        answer_wait: Duration::from_secs(1),
        release_retry: Duration::from_millis(100),
        offer_max: Duration::from_secs(60),
        silence_max: Duration::from_secs(3600),
        outbox_bytes: crate::config::OUTBOX_BYTES,
        steps_in_flight: 1,
    };
    let mut chains = Vec::new();
    for prompt in held {
        let mut chain = Vec::new();
        config.scope("", None).extend_chain(&mut chain, prompt, SIZE);
        chains.extend(chain.into_iter().filter(|hash| !chains.contains(hash)).collect::<Vec<_>>());
    }
    let record = |(slot, hash)| TierRecord { slot: Slot { group: GroupId(0), slot }, hash, tenant: TENANT };
    let notes = Arc::<Mutex<Notes>>::default();
    let tier = TierParts {
        tier: Tier::Disk,
        mover: Box::new(Drive(notes.clone())),
        config: TierConfig { slots: vec![200], writes_max: 0, backlog_max: 0, write: WritePolicy::Never },
        records: (0..).zip(chains).map(record).collect(),
    };
    let wire = Box::new(Wire(notes.clone()));
    let device = Box::new(Paper { layout, limits, notes: notes.clone() });
    let machine = Machine::new(config, Box::new(Whole), device, wire).expect("the settings fit").with_tier(tier);
    let mut world = World { machine, notes, now: Time::ZERO + STEP };
    let hears = world.notes.clone();
    let send = Box::new(move |bytes: Vec<u8>| {
        let said = proto::session::decode_from_worker(&bytes).expect("it is whole");
        hears.lock().expect("no test panicked").said.push(said);
        Ok(())
    });
    world.handle(Inbound::Opened { session: SESSION, send, ended: Arc::default() });
    world
}

/// Returns the same, with an empty host tier of so many blocks above the disk.
pub(super) fn world_with_host(blocks: u32, slots: u32, held: &[Vec<Token>]) -> World {
    let mut world = world(blocks, held);
    let config = TierConfig { slots: vec![slots], writes_max: 0, backlog_max: 0, write: WritePolicy::Never };
    let mover = Box::new(Drive(world.notes.clone()));
    world.machine = world.machine.with_tier(TierParts { tier: Tier::Host, mover, config, records: Vec::new() });
    world
}

impl World {
    pub(super) fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().expect("no test panicked")
    }

    pub(super) fn handle(&mut self, event: Inbound) {
        assert!(self.machine.handle_event(self.now, event).is_continue(), "no test shuts it down");
    }

    /// Room for so many tokens is taken, as if a handoff were being read into it.
    pub(super) fn take_room(&mut self, tokens: u32) {
        self.machine.core.kv.open(HANDOFF, TENANT, &[], tokens, 0);
    }

    /// That room is given back.
    pub(super) fn give_room_back(&mut self) {
        self.machine.core.kv.close(HANDOFF);
    }

    pub(super) fn tell(&mut self, message: &ToWorker) {
        let bytes = proto::session::encode_to_worker(message);
        self.handle(Inbound::Session { session: SESSION, bytes });
        self.machine.admit(self.now);
    }

    pub(super) fn submit_until(&mut self, request: u64, prompt: &[Token], max_tokens: u32, deadline: Duration) {
        self.tell(&ToWorker::Submit(Submit {
            request: RequestId(request),
            epoch: Epoch(1),
            assignment: Assignment::Whole,
            choices: vec![(Choice(0), [].into())],
            prompt: prompt.into(),
            params: Arc::new(SamplingParams { max_tokens, ..SamplingParams::default() }),
            seed: 0,
            deadline,
            lease: Duration::from_secs(1),
            tenant: String::new(),
            adapter: None,
            holder: None,
            trace: None,
            timed: false,
        }));
    }

    pub(super) fn submit(&mut self, request: u64, prompt: &[Token], max_tokens: u32) {
        self.submit_until(request, prompt, max_tokens, Duration::from_secs(3600));
    }

    pub(super) fn cancel(&mut self, request: u64) {
        self.tell(&ToWorker::Cancel { request: RequestId(request), epoch: Epoch(1), choice: None });
    }

    /// Another worker says something, in this life of it.
    pub(super) fn hear(&mut self, from: WorkerId, life: u64, body: PeerBody) {
        let (from_incarnation, to_incarnation) = (Incarnation(life), Some(Incarnation(1)));
        let bytes = proto::handoff::encode(&PeerMessage { from, from_incarnation, to_incarnation, body });
        self.handle(Inbound::Agent(AgentEvent::Message { from, bytes }));
        self.machine.turn(self.now);
    }

    /// Returns what other workers were told since this was asked last.
    pub(super) fn told(&mut self) -> Vec<(WorkerId, PeerBody)> {
        self.machine.turn(self.now);
        std::mem::take(&mut self.notes().told)
    }

    /// A step, if there is anything to compute.
    pub(super) fn step(&mut self) {
        self.machine.turn(self.now);
        self.now = self.now + STEP;
        self.machine.collect(self.now);
    }

    pub(super) fn steps(&mut self, steps: u32) {
        (0..steps).for_each(|_| self.step());
    }

    /// Ends all reads that are under way so, a moment later.
    pub(super) fn end_reads(&mut self, end: ReadEnd) -> usize {
        let reads = std::mem::take(&mut self.notes().reads);
        self.now = self.now + Duration::from_millis(1);
        reads.iter().for_each(|&(key, read)| self.end(key, read, end));
        reads.len()
    }

    /// Ends the read so that was begun first of those under way.
    pub(super) fn end_read(&mut self, end: ReadEnd) {
        let (key, read) = self.notes().reads.remove(0);
        self.end(key, read, end);
    }

    fn end(&mut self, key: SeqKey, read: TierRead, end: ReadEnd) {
        let ended = TierEvent::Read { key, read, end, elapsed: Duration::from_millis(1) };
        self.handle(Inbound::Tier(ended));
        self.machine.admit(self.now);
    }

    /// A read that was abandoned leaves the tier.
    pub(super) fn settle(&mut self) {
        let settled = TierEvent::Settled { tier: Tier::Disk, moved: false };
        self.handle(Inbound::Tier(settled));
    }

    /// Requests for which records are being lifted, and how many.
    pub(super) fn lifting(&self) -> BTreeMap<u64, usize> {
        let mut requests = BTreeMap::new();
        self.notes().lifts.iter().for_each(|(key, _)| *requests.entry(key.request.0).or_default() += 1);
        requests
    }

    /// Ends the reads of all lifts under way so, and begins what may be begun then.
    pub(super) fn end_lifts(&mut self, end: ReadEnd) {
        let lifts = std::mem::take(&mut self.notes().lifts);
        for (prompt, lift) in lifts {
            let record = (end == ReadEnd::Good).then(|| Record::new(Box::default()));
            let ended = TierEvent::Lifted { prompt, lift, end, record, elapsed: Duration::from_millis(1) };
            self.handle(Inbound::Tier(ended));
        }
        self.machine.turn(self.now);
    }

    /// All that was lifted lands.
    pub(super) fn land(&mut self) {
        let landing = std::mem::take(&mut self.notes().landing);
        for (prompt, lift) in landing {
            let ended = TierEvent::Landed { prompt, lift, there: true, elapsed: Duration::from_millis(1) };
            self.handle(Inbound::Tier(ended));
        }
        self.machine.turn(self.now);
    }

    /// Returns the counts of the host tier.
    pub(super) fn host(&self) -> kv_manager::tiers::TierStats {
        let mut tiers = self.machine.core().kv.tier_stats();
        tiers.find(|(tier, _)| *tier == Tier::Host).expect("there is a host tier").1
    }

    /// Requests for which reads are under way.
    pub(super) fn reading(&self) -> Vec<u64> {
        let mut requests: Vec<u64> = self.notes().reads.iter().map(|(key, _)| key.request.0).collect();
        requests.dedup();
        requests
    }

    /// Prompt tokens that were computed of the request. `None`: it was not begun.
    pub(super) fn computed(&self, request: u64) -> Option<u32> {
        self.notes().computed.get(&request).copied()
    }

    /// Requests that ended well.
    pub(super) fn ended(&self) -> Vec<u64> {
        let ended = |said: &FromWorker| match said {
            FromWorker::Ended { key, .. } => Some(key.request.0),
            _ => None,
        };
        self.notes().said.iter().filter_map(ended).collect()
    }

    pub(super) fn failed(&self) -> Vec<(u64, domain::session::Failure)> {
        let failed = |said: &FromWorker| match said {
            FromWorker::Failed { request, why, .. } => Some((request.0, *why)),
            _ => None,
        };
        self.notes().said.iter().filter_map(failed).collect()
    }

    /// Nothing is left of all requests.
    #[track_caller]
    pub(super) fn check_idle(&mut self) {
        self.machine.turn(self.now);
        let sizes = self.machine.core().sizes().into_iter().chain(self.machine.offers().sizes());
        let left: Vec<_> = sizes.filter(|&(_, size)| size > 0).collect();
        assert_eq!(left, []);
        self.machine.core().kv.check();
    }
}
