//! Prefill and decode workers in one process, and a router that does what the test says.

use decode_worker::Decode;
use domain::session::{Assignment, Failure, FromWorker, Holder, Migrate, Report, Role, Submit, ToWorker, TokenRow};
use domain::{
    Adapter, Choice, End, Epoch, Incarnation, KvLayout, RequestId, SamplingParams, SeqKey, Time, Token, WorkerId,
};
use engine::device::{Device, DeviceLimits, STEPS_IN_FLIGHT_MAX};
use engine::grammar::Grammars;
use kv_manager::tiers::WritePolicy;
use kv_manager::{EvictionPolicy, Quotas, Watermarks};
use prefill_worker::Prefill;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::{Nothing, PrefixAsk, WorkerAnswer, WorkerAsk, WorkerPrefix, prefix_ask, worker_answer};
use scheduler::SchedulerConfig;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tiers::{DiskConfig, HostConfig, Shared, StoreConfig, TierParts, open_disk_tier, open_host_tier, open_object_tier};
use transport::{Hub, ObjectCredentials};
use worker::{Clock, Inbox, OUTBOX_BYTES, SessionInput, Worker, WorkerConfig, WorkerInput, WorkerParts};
use worker::{agent_config, inbox, join};

/// The first prefill worker. All prefill workers have even ids.
pub const PREFILL: WorkerId = WorkerId(0);
/// The first decode worker. All decode workers have odd ids.
pub const DECODE: WorkerId = WorkerId(1);
const PATIENCE: Duration = Duration::from_secs(60);
const STEP_TOKENS_MAX: u32 = 1024;
const SAMPLES_MAX: u32 = 128;
/// Bytes of a disk tier.
const TIER_BYTES: u64 = 4 << 20;

fn make_role(role: Role) -> Box<dyn worker::Role> {
    match role {
        Role::Prefill => Box::new(Prefill),
        Role::Decode => Box::new(Decode),
    }
}

/// How the workers are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pairs of a prefill and a decode worker.
    pub pairs: u32,
    /// Layout of the KV pools of all.
    pub layout: KvLayout,
    /// Blocks per KV group of each prefill worker's pools, and of each decode worker's.
    pub blocks: [u32; 2],
    /// Most prompt tokens of a sequence in a step.
    pub chunk: u32,
    /// Most sequences that run at once.
    pub running_max: u32,
    /// Blocks that prompts leave to running sequences.
    pub reserve: u32,
    /// Most blocks of a group that pins may name, in percent.
    pub pinned_percent: u32,
    /// What tenants take from each other.
    pub quotas: Quotas,
    /// Memory of each worker's host tier. 0: it has none.
    pub host_bytes: u64,
    /// Where workers read each other's host tiers.
    pub host_folder: Option<PathBuf>,
    /// Where disk tiers are, a folder for each worker.
    pub disk: Option<PathBuf>,
    /// A store for their object tiers: its endpoint and bucket.
    pub store: Option<(String, String)>,
    /// How long a reader waits for an offer, and then for room.
    pub handoff_wait: Duration,
    /// How long a reader waits for the answer to its release.
    pub answer_wait: Duration,
    /// Bytes that wait for a router before its sequences do.
    pub outbox_bytes: usize,
    /// Steps that a device has at once.
    pub steps_in_flight: usize,
    /// What compiles grammars, if anything does.
    pub grammars: Option<Arc<Grammars>>,
}

impl Options {
    /// Workers with so many blocks each that nothing runs short.
    pub fn roomy(layout: KvLayout) -> Self {
        Self {
            pairs: 1,
            layout,
            blocks: [512; 2],
            chunk: 32,
            running_max: 64,
            reserve: 4,
            pinned_percent: 0,
            quotas: Quotas::default(),
            host_bytes: 0,
            host_folder: None,
            disk: None,
            store: None,
            handoff_wait: Duration::from_secs(30),
            answer_wait: Duration::from_secs(10),
            outbox_bytes: OUTBOX_BYTES,
            steps_in_flight: STEPS_IN_FLIGHT_MAX,
            grammars: None,
        }
    }

    /// What a device must be able to do for it.
    pub fn limits(&self, worker: WorkerId) -> DeviceLimits {
        DeviceLimits {
            rows_max: STEP_TOKENS_MAX as usize,
            outputs_max: SAMPLES_MAX as usize,
            context_max: 2048,
            blocks: vec![self.blocks[worker.0 as usize % 2]; self.layout.groups.len()],
            slots_max: SAMPLES_MAX as usize,
        }
    }
}

/// The workers and everything they said.
pub struct Cluster {
    /// Where the workers find each other, and a test's own agents them.
    pub hub: Hub,
    /// The options' layout.
    pub layout: KvLayout,
    /// The last report of each.
    pub reports: BTreeMap<WorkerId, Report>,
    /// Tokens, with who sent them, in the order of arrival.
    pub rows: BTreeMap<SeqKey, Vec<(WorkerId, TokenRow)>>,
    /// Regular ends and the tokens that they count.
    pub ends: BTreeMap<SeqKey, (u32, End)>,
    /// Irregular ends.
    pub failures: Vec<(RequestId, Epoch, Failure, String)>,
    /// The peer that was said not to have done its part in the last one of an attempt.
    pub faults: BTreeMap<(RequestId, Epoch), Option<WorkerId>>,
    options: Options,
    workers: BTreeMap<WorkerId, (Worker, SessionInput)>,
    /// Nothing more is read of what workers say in sessions that are open now.
    is_reading: Arc<AtomicBool>,
    heard: Sender<(WorkerId, FromWorker)>,
    from: Receiver<(WorkerId, FromWorker)>,
}

impl Cluster {
    /// Starts the workers; `device` makes the device of each.
    pub fn new(options: &Options, device: impl Fn(WorkerId) -> Box<dyn Device>) -> Self {
        let (heard, from) = channel();
        let mut cluster = Self {
            hub: Hub::new(),
            layout: options.layout.clone(),
            reports: BTreeMap::new(),
            rows: BTreeMap::new(),
            ends: BTreeMap::new(),
            failures: Vec::new(),
            faults: BTreeMap::new(),
            options: options.clone(),
            workers: BTreeMap::new(),
            is_reading: Arc::new(AtomicBool::new(true)),
            heard,
            from,
        };
        (0..2 * options.pairs).map(WorkerId).for_each(|id| cluster.start(id, Incarnation(1), device(id)));
        cluster
    }

    /// Starts a worker, after ending its earlier life if it has one.
    pub fn start(&mut self, id: WorkerId, incarnation: Incarnation, device: Box<dyn Device>) {
        self.end(id);
        let (config, inbox) = (config(&self.options, id, incarnation), inbox());
        let agent = join(&self.hub, &config, agent_config(&config), &*device, &inbox).expect("the agent starts");
        let tiers = self.tiers(&config, &*device, &inbox);
        let role = if id.0.is_multiple_of(2) { Role::Prefill } else { Role::Decode };
        let worker = Worker::start(WorkerParts {
            config,
            role,
            make_role,
            grammars: self.options.grammars.clone(),
            device,
            agent,
            inbox,
            tiers,
        });
        let worker = worker.expect("the worker starts");
        let input = self.session(id, &worker);
        self.workers.insert(id, (worker, input));
    }

    fn tiers(&self, config: &WorkerConfig, device: &dyn Device, inbox: &Inbox) -> Vec<TierParts> {
        let (id, layout, mut tiers) = (config.id, &config.layout, Vec::new());
        let owner = inbox.tier_owner(device, layout);
        let shared = |folder: &PathBuf| Shared { folder: folder.clone(), adopted_bytes: 0 };
        let host = HostConfig {
            name: id.to_string(),
            worker: id,
            life: config.incarnation,
            weights: config.weights,
            bytes: self.options.host_bytes,
            // Of one's own nothing is written there but what is parked: no block of a test is used twice before.
            write: if self.options.host_folder.is_some() { WritePolicy::Through } else { WritePolicy::SecondUse },
            shared: self.options.host_folder.as_ref().map(shared),
        };
        if host.bytes > 0 {
            tiers.extend(open_host_tier(&host, layout, &owner).expect("the tier opens"));
        }
        if let Some(folder) = &self.options.disk {
            let disk = DiskConfig {
                name: id.to_string(),
                worker: id,
                weights: config.weights,
                folders: vec![folder.join(id.to_string())],
                bytes: TIER_BYTES,
                write: WritePolicy::Through,
                depth: 4,
            };
            tiers.push(open_disk_tier(&disk, layout, &owner).expect("the tier opens"));
        }
        if let Some((endpoint, bucket)) = &self.options.store {
            let word = || "test".to_owned();
            let store = StoreConfig {
                name: id.to_string(),
                worker: id,
                weights: config.weights,
                endpoint: endpoint.clone(),
                region: "us-east-1".to_owned(),
                bucket: bucket.clone(),
                prefix: String::new(),
                credentials: ObjectCredentials { key_id: word(), secret: word(), token: None },
                write: WritePolicy::Through,
                requests_max: 8,
                known_max: 1024,
                list_every: Duration::from_secs(1),
            };
            tiers.push(open_object_tier(&store, layout, &owner).expect("the tier opens"));
        }
        tiers
    }

    fn session(&self, id: WorkerId, worker: &Worker) -> SessionInput {
        let (heard, is_reading) = (self.heard.clone(), self.is_reading.clone());
        let send = Box::new(move |bytes: Vec<u8>| {
            if !is_reading.load(Ordering::Acquire) {
                return Err(bytes);
            }
            let message = proto::session::decode_from_worker(&bytes).expect("a worker speaks the protocol");
            heard.send((id, message)).map_err(|_| bytes)
        });
        worker.input().open_session(send).expect("the worker takes a session")
    }

    /// Ends a worker. What it said at last is heard.
    pub fn end(&mut self, id: WorkerId) {
        self.workers.remove(&id);
        self.reports.remove(&id);
    }

    /// Whether a worker has ended by itself.
    pub fn has_ended(&self, id: WorkerId) -> bool {
        self.workers[&id].0.has_ended()
    }

    /// Whether nobody listens to a worker's session any more.
    pub fn is_deaf(&self, id: WorkerId) -> bool {
        let send = Box::new(Err);
        self.workers[&id].0.input().open_session(send).is_none()
    }

    /// Where a worker's events go.
    pub fn input(&self, id: WorkerId) -> WorkerInput {
        self.workers[&id].0.input()
    }

    /// What ends a worker.
    pub fn failure(&self, id: WorkerId) -> transport::Failure {
        self.workers[&id].0.input().failure().clone()
    }

    /// Stops to read what workers say in the sessions that are open. What sets it reading again.
    pub fn stop_reading(&mut self) -> Arc<AtomicBool> {
        self.is_reading.store(false, Ordering::Release);
        std::mem::replace(&mut self.is_reading, Arc::new(AtomicBool::new(true)))
    }

    /// Begins another session with a worker, and gives the one before.
    pub fn another_session(&mut self, id: WorkerId) -> SessionInput {
        let (worker, old) = self.workers.remove(&id).expect("a worker");
        let new = self.session(id, &worker);
        self.workers.insert(id, (worker, new));
        old
    }

    /// Ends the session with a worker, and begins another.
    pub fn lose_session(&mut self, id: WorkerId) {
        self.reports.remove(&id);
        drop(self.another_session(id));
    }

    /// Sends a message over the session.
    pub fn tell(&self, to: WorkerId, message: &ToWorker) {
        assert!(self.workers[&to].1.try_send(proto::session::encode_to_worker(message)));
    }

    /// What a worker does with a prefix of a tenant's when an operator asks it.
    pub fn prefix(&self, to: WorkerId, tenant: &str, tokens: &[Token], what: prefix_ask::Body) -> WorkerPrefix {
        let ask = PrefixAsk { tenant: tenant.to_owned(), tokens: tokens.to_vec(), body: Some(what) };
        match self.ask(to, Ask::Prefix(ask)).body {
            Some(worker_answer::Body::Prefix(prefix)) => prefix,
            other => panic!("{other:?}"),
        }
    }

    /// How many blocks of a tenant's prefix leave the device when an operator parks it.
    pub fn park(&self, to: WorkerId, tenant: &str, tokens: &[Token]) -> u32 {
        self.prefix(to, tenant, tokens, prefix_ask::Body::Park(Nothing {})).blocks
    }

    /// What a worker answers to an operator at its own port.
    pub fn ask(&self, to: WorkerId, ask: Ask) -> WorkerAnswer {
        let (reply, answer) = channel();
        let taken = self.workers[&to].0.input().ask(WorkerAsk { body: Some(ask) }, move |said| {
            let _ = reply.send(said);
        });
        assert!(taken, "the worker takes what is asked");
        answer.recv_timeout(PATIENCE).expect("the worker answers")
    }

    /// Begins an attempt on one worker.
    pub fn submit(&self, to: WorkerId, request: &Asked, assignment: Assignment) {
        self.tell(to, &ToWorker::Submit(request.submit(assignment)));
    }

    /// Submits to the first pair, the decode worker first or last.
    pub fn hand_off(&self, request: &Asked) {
        self.hand_off_between(request, PREFILL, DECODE);
    }

    /// Submits to these two, the decode worker first or last.
    pub fn hand_off_between(&self, request: &Asked, prefill: WorkerId, decode: WorkerId) {
        let (decode, prefill) = ((decode, Assignment::Decode { prefill }), (prefill, Assignment::Prefill { decode }));
        let order = if request.id.is_multiple_of(2) { [decode, prefill] } else { [prefill, decode] };
        order.into_iter().for_each(|(to, assignment)| self.submit(to, request, assignment));
    }

    /// Has `to` take over what `from` decodes, with the tokens that were heard so far; what it goes on as.
    pub fn migrate(&self, request: &Asked, from: WorkerId, to: WorkerId) -> Asked {
        let heard = self.rows.get(&request.key(0)).into_iter().flatten().map(|(_, row)| row.token);
        let committed: Vec<Token> = request.committed.iter().copied().chain(heard).collect();
        let (known, next) = (committed.len() as u32, Epoch(request.epoch.0 + 1));
        let moved = Asked { epoch: next, committed, ..request.clone() };
        self.submit(to, &moved, Assignment::TakeOver { from });
        let (id, epoch, lease) = (RequestId(request.id), request.epoch, moved.submit(Assignment::Whole).lease);
        self.tell(from, &ToWorker::Migrate(Migrate { request: id, epoch, to, next, known, lease }));
        moved
    }

    /// Waits until a sequence that moves has ended, here or there, and gives its whole text, checked to be gapless and
    /// unrepeated, with how many tokens `moved` made of it.
    pub fn moved_text(&mut self, request: &Asked, moved: &Asked) -> (Vec<Token>, usize) {
        let keys = [request.key(0), moved.key(0)];
        self.until(&format!("the end of request {}, which moved", request.id), |cluster| {
            keys.iter().any(|key| cluster.ends.contains_key(key)) || !cluster.failures.is_empty()
        });
        assert!(self.failures.is_empty(), "{:?}", self.failures);
        let rows = |key| self.rows.get(key).into_iter().flatten().map(|(_, row)| (row.index, row.token));
        let mut all: Vec<_> = keys.iter().flat_map(rows).collect();
        all.sort_unstable();
        let indices = (request.committed.len() as u32..).take(all.len());
        assert!(all.iter().map(|&(index, _)| index).eq(indices), "gaps or repetitions: {all:?}");
        (all.into_iter().map(|(_, token)| token).collect(), rows(&keys[1]).count())
    }

    /// Cancels the attempt on both workers.
    pub fn cancel(&self, request: &Asked) {
        let message = ToWorker::Cancel { request: RequestId(request.id), epoch: request.epoch, choice: None };
        [PREFILL, DECODE].into_iter().for_each(|to| self.tell(to, &message));
    }

    /// Takes in what workers say until `done`.
    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let clock = Clock::start();
        while !done(self) {
            assert!(
                clock.now() < Time::ZERO + PATIENCE,
                "{what} did not happen; ends {:?}, {:?}",
                self.ends,
                self.failures
            );
            if let Ok((from, message)) = self.from.recv_timeout(Duration::from_millis(10)) {
                self.take(from, message);
            }
        }
    }

    /// Takes in what workers say for a while.
    pub fn during(&mut self, time: Duration) {
        let clock = Clock::start();
        while let Some(left) = time.checked_sub(clock.now().since(Time::ZERO)).filter(|left| !left.is_zero()) {
            if let Ok((from, message)) = self.from.recv_timeout(left) {
                self.take(from, message);
            }
        }
    }

    fn take(&mut self, from: WorkerId, message: FromWorker) {
        match message {
            FromWorker::Tokens(rows) => {
                for row in rows {
                    self.rows.entry(row.key).or_default().push((from, row));
                }
            }
            FromWorker::Ended { key, tokens, end } => {
                assert!(self.ends.insert(key, (tokens, end)).is_none(), "{key} ended twice");
            }
            FromWorker::Failed { request, epoch, why, fault, detail } => {
                self.faults.insert((request, epoch), fault);
                self.failures.push((request, epoch, why, detail));
            }
            FromWorker::Challenge(_)
            | FromWorker::Hello(_)
            | FromWorker::Heartbeat
            | FromWorker::Draining
            | FromWorker::OperatorAnswer { .. }
            | FromWorker::Phases { .. } => {}
            FromWorker::Report(report) => {
                self.reports.insert(from, report);
            }
        }
    }

    /// The text of a sequence, checked to be gapless and unrepeated.
    pub fn text(&self, request: &Asked, choice: u16) -> Vec<Token> {
        let key = request.key(choice);
        let mut rows: Vec<_> =
            self.rows.get(&key).into_iter().flatten().map(|(_, row)| (row.index, row.token)).collect();
        rows.sort_unstable();
        let first = request.committed.len() as u32;
        for (at, &(index, _)) in rows.iter().enumerate() {
            assert_eq!(index, first + at as u32, "the tokens of {key} are gapless and come once");
        }
        rows.into_iter().map(|(_, token)| token).collect()
    }

    /// Waits until every sequence of the request has ended, or its attempt failed.
    pub fn wait_end(&mut self, request: &Asked) {
        let keys: Vec<_> = (0..request.choices).map(|choice| request.key(choice)).collect();
        self.until(&format!("the end of request {}", request.id), |cluster| {
            keys.iter().all(|key| cluster.ends.contains_key(key))
                || cluster.failures.iter().any(|(id, epoch, ..)| *id == keys[0].request && *epoch == keys[0].epoch)
        });
    }

    /// Waits until every block of every worker is free or could be evicted, and nothing runs.
    pub fn wait_idle(&mut self) {
        let ids: Vec<_> = self.workers.keys().copied().collect();
        for id in ids {
            // A report of before what the test did would say the same: a new one is asked for.
            self.reports.remove(&id);
            self.tell(id, &ToWorker::Snapshot);
            self.until(&format!("all blocks of {id} to be given back"), |cluster| {
                cluster.reports.get(&id).is_some_and(|report| {
                    report.blocks_available == report.blocks_total && report.running == 0 && report.waiting == 0
                })
            });
        }
    }
}

fn config(options: &Options, id: WorkerId, incarnation: Incarnation) -> WorkerConfig {
    WorkerConfig {
        id,
        incarnation,
        name: id.to_string(),
        layout: options.layout.clone(),
        blocks: options.limits(id).blocks,
        weights: [7; 32],
        reserve_blocks: vec![options.reserve; options.layout.groups.len()],
        eviction: EvictionPolicy::S3Fifo,
        watermarks: Watermarks::default(),
        pinned_percent: options.pinned_percent,
        quotas: options.quotas,
        park_after: None,
        scheduler: SchedulerConfig {
            step_tokens_max: STEP_TOKENS_MAX,
            chunk_tokens: options.chunk,
            running_max: options.running_max,
            waiting_max: 1000,
            block_tokens: options.layout.block_tokens,
            samples_max: SAMPLES_MAX,
        },
        handoff_wait: options.handoff_wait,
        answer_wait: options.answer_wait,
        release_retry: Duration::from_millis(200),
        offer_max: Duration::from_secs(60),
        // The test says nothing for as long as it likes.
        silence_max: Duration::from_secs(3600),
        outbox_bytes: options.outbox_bytes,
        steps_in_flight: options.steps_in_flight,
    }
}

/// A request of a test.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its id.
    pub id: u64,
    /// The attempt.
    pub epoch: Epoch,
    /// Prompt tokens.
    pub prompt: Vec<Token>,
    /// Output tokens of an earlier attempt.
    pub committed: Vec<Token>,
    /// Sequences.
    pub choices: u16,
    /// Whose it is.
    pub tenant: String,
    /// What it is computed with.
    pub adapter: Option<Adapter>,
    /// How to sample.
    pub params: SamplingParams,
    /// Seed of the request.
    pub seed: u64,
    /// How long a lease lives.
    pub lease: Duration,
    /// The client's deadline.
    pub deadline: Duration,
    /// Who has the beginning of the prompt.
    pub holder: Option<Holder>,
}

impl Asked {
    /// One sequence, greedy, with time enough.
    pub fn new(id: u64, prompt: Vec<Token>, max_tokens: u32) -> Self {
        Self {
            id,
            epoch: Epoch(1),
            prompt,
            committed: Vec::new(),
            choices: 1,
            tenant: String::new(),
            adapter: None,
            params: SamplingParams { max_tokens, temperature: 0.0, ..SamplingParams::default() },
            seed: 99,
            lease: Duration::from_secs(20),
            deadline: Duration::from_secs(120),
            holder: None,
        }
    }

    /// Key of one of its sequences.
    pub fn key(&self, choice: u16) -> SeqKey {
        SeqKey { request: RequestId(self.id), epoch: self.epoch, choice: Choice(choice) }
    }

    /// What a router says to begin an attempt at it.
    pub fn submit(&self, assignment: Assignment) -> Submit {
        Submit {
            request: RequestId(self.id),
            epoch: self.epoch,
            assignment,
            choices: (0..self.choices).map(|choice| (Choice(choice), self.committed.clone().into())).collect(),
            prompt: self.prompt.clone().into(),
            params: Arc::new(self.params.clone()),
            seed: self.seed,
            deadline: self.deadline,
            lease: self.lease,
            tenant: self.tenant.clone(),
            adapter: self.adapter.clone(),
            holder: self.holder,
            trace: None,
            timed: false,
        }
    }
}

/// A prompt of `len` tokens.
pub fn prompt(len: u32, salt: u32) -> Vec<Token> {
    (0..len).map(|i| (i * 31 + salt * 7 + 1) % 997).collect()
}
