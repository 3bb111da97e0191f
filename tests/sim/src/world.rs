//! A world: a whole cluster in virtual time. One thread, one seed, one order of events.

use crate::client::{Client, Outcome};
use crate::coverage::Coverage;
use crate::disk::Platter;
use crate::event::{Event, Life, ReadKey, RouterIndex, WorkerIndex};
use crate::event_queue::EventQueue;
use crate::expected::Expected;
use crate::fault::FaultKind;
use crate::invariants::{self, Law, Violation};
use crate::lease::Leases;
use crate::listing::{Discovery, Mistake};
use crate::operators::Duty;
use crate::process::{Inmail, Router, Worker};
use crate::random::Random;
use crate::read::Read;
use crate::scenario::{Ask, PROBE_FIRST, Scenario};
use crate::session::{Session, SessionKey};
use crate::step::{Step, steps_at};
use crate::trace::Trace;
use domain::session::Role;
use domain::{Choice, Epoch, RequestId, Time, WorkerId};
use proto::admin::{Nothing, PrefixAsk, WorkerAsk, prefix_ask, worker_ask};
use std::collections::BTreeMap;
use std::time::Duration;

/// What may go on after all faults are over: silence is noticed, sessions are dialled anew.
const SETTLES: Duration = Duration::from_millis(1500);
/// How often it is seen whether the next probe may be sent.
const PROBE_RETRY: Duration = Duration::from_millis(20);
/// By then every request has ended and nothing is left of any.
const FINISHES_MAX: Duration = Duration::from_secs(30);
/// Why a step fails that has a poisoned prompt in it.
pub(crate) const POISON: &str = "a poisoned prompt makes the step fail";
/// Of so many prompts out of 1,000 an operator wants something.
const OPERATED: u32 = 150;
/// More events than any world has that goes on.
const EVENTS_MAX: u64 = 2_000_000;

/// Faults of messages between workers, in times out of 1,000; they add up.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Chaos {
    pub(crate) loss: u32,
    pub(crate) twice: u32,
    pub(crate) delay: u32,
}

/// The world.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now: Time,
    pub(crate) agenda: EventQueue,
    pub(crate) random: Random,
    pub(crate) truth: Expected,
    pub(crate) routers: Vec<Router>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) sessions: BTreeMap<SessionKey, Session>,
    pub(crate) session_keys: SessionKey,
    pub(crate) reads: BTreeMap<ReadKey, Read>,
    pub(crate) read_keys: ReadKey,
    /// How many faults keep process `from` from reaching process `to`; routers come first.
    pub(crate) blocked: Vec<Vec<u32>>,
    pub(crate) chaos: Chaos,
    /// When the last message of a worker to another arrives, where nothing is wrong with the way.
    pub(crate) peer_last: BTreeMap<(WorkerIndex, WorkerIndex), Time>,
    pub(crate) leases: Leases,
    pub(crate) clients: BTreeMap<RequestId, Client>,
    pub(crate) asks: Vec<Ask>,
    /// Faults that wait for a step.
    pub(crate) armed: Vec<usize>,
    /// What a fault that has begun was aimed at.
    pub(crate) struck: BTreeMap<usize, Vec<Reach>>,
    pub(crate) healed: Option<Time>,
    /// Requests that must be served, and whether all were asked.
    probes: usize,
    pub(crate) probed: bool,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    pub(crate) violation: Option<Violation>,
    pub(crate) events: u64,
    /// Frames of sessions that were sent.
    pub(crate) frames: u64,
    /// The longest step of any device so far.
    pub(crate) longest_step: Duration,
    /// None: routers have a list of all workers.
    pub(crate) discovery: Option<Discovery>,
}

/// Something that a fault changed and that its end undoes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reach {
    Blocked {
        from: usize,
        to: usize,
    },
    Slow(WorkerIndex),
    Chaos(Chaos),
    Repeats(SessionKey),
    /// What an operator asked of a worker.
    Operated(WorkerIndex, FaultKind),
    /// What the directory is wrong about.
    Directory(Mistake),
}

impl World {
    pub(crate) fn new(scenario: Scenario, trace: Trace) -> Self {
        let processes = scenario.routers + scenario.prefill + scenario.decode;
        let role = |index: usize| if index < scenario.prefill { Role::Prefill } else { Role::Decode };
        let worker = |index: usize| Worker {
            id: WorkerId(index as u32),
            role: role(index),
            wanted: Duty::of(role(index)),
            operated: false,
            life: 0,
            alive: None,
            platter: Platter::default(),
            slab: Platter::default(),
            gone: false,
            slow: 1,
        };
        Self {
            now: Time::ZERO,
            agenda: EventQueue::default(),
            random: Random::new(scenario.seed, 3),
            truth: Expected::new(scenario.layout.clone(), &scenario.tenants.names, Scenario::vocabulary()),
            routers: (0..scenario.routers).map(|_| Router { life: 0, alive: None }).collect(),
            workers: (0..scenario.prefill + scenario.decode).map(worker).collect(),
            sessions: BTreeMap::new(),
            session_keys: 0,
            reads: BTreeMap::new(),
            read_keys: 0,
            blocked: vec![vec![0; processes]; processes],
            chaos: Chaos::default(),
            peer_last: BTreeMap::new(),
            leases: Leases::default(),
            clients: BTreeMap::new(),
            asks: scenario.asks.clone(),
            armed: Vec::new(),
            struck: BTreeMap::new(),
            healed: None,
            probes: 0,
            probed: false,
            coverage: Coverage::default(),
            trace,
            violation: None,
            events: 0,
            frames: 0,
            longest_step: Duration::ZERO,
            discovery: scenario.listings.map(|listings| Discovery::new(listings, scenario.seed)),
            scenario,
        }
    }

    /// Runs to the end: everything that was asked has ended and nothing is left of it, or something is wrong.
    pub(crate) fn run(&mut self) {
        (0..self.workers.len()).for_each(|worker| self.start_worker(worker));
        (0..self.routers.len()).for_each(|router| self.start_router(router));
        for (ask, at) in self.asks.iter().map(|ask| ask.at).enumerate() {
            self.agenda.enter(Time::ZERO + at, Event::Arrive { ask });
            if self.random.chance(OPERATED) {
                let at = at + self.random.millis(0, 200);
                self.agenda.enter(Time::ZERO + at, Event::Operate { ask });
            }
        }
        for (fault, at) in self.scenario.faults.iter().map(|fault| fault.after).enumerate() {
            self.agenda.enter(Time::ZERO + at, Event::Strike { fault });
        }
        self.agenda.enter(Time::ZERO + self.scenario.hurts, Event::Heal);
        while self.violation.is_none()
            && let Some((at, event)) = self.agenda.next()
        {
            self.now = at;
            self.events += 1;
            self.happen(event);
            if self.healed.is_some() && self.events.is_multiple_of(32) && self.is_over() {
                return;
            }
        }
    }

    /// Whether it is over. After its time it is, and what is left is a violation.
    fn is_over(&mut self) -> bool {
        let late = self.healed.is_some_and(|healed| self.now >= healed + FINISHES_MAX) || self.events >= EVENTS_MAX;
        let left = invariants::finish::check(self);
        match left {
            Ok(()) => true,
            Err(what) if late => {
                let what = format!("{what}; {} events are to come", self.agenda.len());
                self.violated(invariants::finish::NAME, what);
                true
            }
            Err(_) => false,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { ask } => self.arrive(ask),
            Event::HangUp { request } => self.hang_up(request),
            Event::Wake { worker, life } => self.wake(worker, life),
            Event::Layer { worker, life } => self.layer(worker, life),
            Event::Peer { from, to, bytes } => self.mail_now(to, crate::process::Inmail::Peer(from, bytes)),
            Event::Frame { session, direction } => self.frame(session, direction),
            Event::Dial { router, life, worker } => self.dial(router, life, worker),
            Event::Register { worker, life } => self.register(worker, life),
            Event::Lapse { worker, life } => self.unlist(worker, life),
            Event::List { router, life } => self.shown(router, life, None),
            Event::Sight { router, life, sight } => self.shown(router, life, Some(*sight)),
            Event::Tick { router, life } => self.tick(router, life),
            Event::StopString { router, life, request, choice } => self.stop_choice(router, life, request, choice),
            Event::Piece { read } => self.piece(read),
            Event::Moved { worker, life, what } => self.moved(worker, life, what),
            Event::Connect { worker, life, peer, reached } => self.connected(worker, life, peer, reached),
            Event::Strike { fault } => self.strike_at_its_time(fault),
            Event::Recover { fault } => self.recover(fault),
            Event::DrainDeadline { worker, life } => self.drain_deadline(worker, life),
            Event::Sockets { worker, life } => self.open_sockets(worker, life),
            Event::Resume { process } => self.resume(process),
            Event::Return { process } => self.come_back(process),
            Event::Operate { ask } => self.operate(ask),
            // What hangs is not healed before it moves again.
            Event::Heal => {
                match self.workers.iter().map(|worker| worker.platter.hung).max().filter(|&hung| hung > self.now) {
                    Some(hung) => self.agenda.enter(hung, Event::Heal),
                    None => self.heal(),
                }
            }
            Event::Undo { role } => self.operators_undo(role),
            Event::Probe => self.probe(),
        }
    }

    /// All faults are over; what will return does.
    fn heal(&mut self) {
        self.trace.note(self.now, || "all faults are over".to_owned());
        self.healed = Some(self.now);
        self.armed.clear();
        self.blocked.iter_mut().flatten().for_each(|faults| *faults = 0);
        self.struck.clear();
        self.chaos = Chaos::default();
        self.scenario.caps = self.scenario.caps.clone().calm();
        let alive = self.workers.iter().filter_map(|worker| worker.alive.as_ref());
        alive.for_each(|alive| alive.shell.notes().bound(&self.scenario.caps));
        self.workers.iter_mut().for_each(|worker| worker.slow = 1);
        self.sessions.values_mut().for_each(|session| session.to_router.repeats = false);
        for process in 0..self.routers.len() + self.workers.len() {
            self.resume(process);
            let at = self.now + self.random.millis(1, 50);
            self.agenda.enter(at, Event::Return { process });
        }
        for worker in 0..self.workers.len() {
            let life = self.workers[worker].life;
            if self.workers[worker].alive.as_ref().is_some_and(|alive| alive.drains) {
                self.agenda.enter(self.now + Duration::from_millis(50), Event::DrainDeadline { worker, life });
            }
        }
        self.directory_heals();
        self.operators_undo_later();
        self.agenda.enter(self.now + self.scenario.silence_max * 2 + SETTLES, Event::Probe);
    }

    /// Once nothing else is asked, each router must serve a request, one after the other.
    fn probe(&mut self) {
        self.probed = self.probes == self.routers.len();
        if self.probed {
            return;
        }
        self.agenda.enter(self.now + PROBE_RETRY, Event::Probe);
        if self.clients.values().all(|client| client.outcome.is_some()) {
            let probe = self.scenario.probe(self.probes as u64, self.probes);
            self.probes += 1;
            self.asks.push(probe);
            self.arrive(self.asks.len() - 1);
        }
    }

    /// Whether a request must end regularly whatever was before it.
    pub(crate) fn must_succeed(&self, request: RequestId) -> bool {
        request.0 >= PROBE_FIRST
    }

    /// Whether its prompt makes every step fail that it is in.
    pub(crate) fn is_poison(&self, request: RequestId) -> bool {
        self.scenario.poison == Some(request)
    }

    /// Whether a client asks for what no worker can give.
    pub(crate) fn asks_too_much(&self, client: &Client) -> bool {
        u32::from(client.ask.request.choices) > self.scenario.scheduler.running_max
    }

    /// Takes a violation; the first counts.
    pub(crate) fn violated(&mut self, invariant: &'static str, what: String) {
        self.broken(Law::Invariant(invariant), what);
    }

    /// Takes a law that was broken; the first counts.
    pub(crate) fn broken(&mut self, law: Law, what: String) {
        self.trace.note(self.now, || format!("VIOLATED {law}: {what}"));
        self.violation.get_or_insert(Violation { law, what, at: self.now });
    }

    pub(crate) fn latency(&mut self) -> Duration {
        let network = self.scenario.network;
        network.latency + self.random.micros(0, network.jitter.as_micros() as u64)
    }

    pub(crate) fn worker_index(&self, id: WorkerId) -> WorkerIndex {
        id.0 as usize
    }

    /// Where a router and a worker stand among the processes.
    pub(crate) fn router_process(&self, router: RouterIndex) -> usize {
        router
    }

    pub(crate) fn worker_process(&self, worker: WorkerIndex) -> usize {
        self.routers.len() + worker
    }

    pub(crate) fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.blocked[from][to] > 0
    }

    /// Whether a reader does not get at an owner's bytes.
    pub(crate) fn blocks_reads(&self, owner: WorkerIndex, reader: WorkerIndex) -> bool {
        let (owner, reader) = (self.worker_process(owner), self.worker_process(reader));
        self.is_blocked(owner, reader) || self.is_blocked(reader, owner)
    }

    /// The steps of what a worker does.
    pub(crate) fn steps_of(&self, w: WorkerIndex) -> Vec<(RequestId, Step)> {
        let worker = &self.workers[w];
        let Some(alive) = &worker.alive else { return Vec::new() };
        let reader = (w, worker.life);
        let reads = &self.reads;
        let has_read = |id| reads.values().any(|read| read.reader == reader && read.id == id && read.has_read());
        let mut steps = steps_at(&alive.machine, has_read);
        let leased = self.leases.of(w, worker.life).filter(|(_, lease)| lease.complete && lease.lives_surely(self.now));
        steps.extend(leased.map(|(_, lease)| (lease.request, Step::Leased)));
        steps
    }

    /// Counts a fault at a worker in the steps of all that it does, or of one request.
    pub(crate) fn cover(&mut self, fault: FaultKind, w: WorkerIndex, only: impl Fn(&Self, RequestId) -> bool) {
        for (request, step) in self.steps_of(w) {
            if only(self, request) {
                self.coverage.hit(fault, step);
            }
        }
    }

    /// The router of a request.
    pub(crate) fn router_of(&self, request: RequestId) -> Option<(RouterIndex, Life)> {
        self.clients.get(&request).map(|client| client.router)
    }

    // -- clients

    fn arrive(&mut self, ask: usize) {
        let ask = self.asks[ask].clone();
        let request = ask.request.id;
        let undisturbed = self.truth.learn(&ask.request);
        let router = ask.router;
        let choices = usize::from(ask.request.choices);
        let life = self.routers[router].life;
        self.trace.note(self.now, || {
            let Ask { request, .. } = &ask;
            format!(
                "{} of \"{}\" asks router {router}: {} tokens, {choices} choices, at most {} tokens, deadline {:?}",
                request.id,
                request.tenant,
                request.prompt.len(),
                request.params.max_tokens,
                request.deadline
            )
        });
        let client = Client {
            undisturbed,
            since: self.now,
            tenant: self.truth.tenant(&ask.request.tenant),
            router: (router, life),
            got: vec![Vec::new(); choices],
            choice_ends: vec![None; choices],
            outcome: self.routers[router].alive.is_none().then_some(Outcome::RouterGone),
            epoch: Epoch(0),
            stopped: false,
            ask: ask.clone(),
        };
        self.clients.insert(request, client);
        if let Some(after) = ask.hangs_up {
            self.agenda.enter(self.now + after, Event::HangUp { request });
        }
        let domain::Request { tenant, adapter, prompt, .. } = &*ask.request;
        let chain = self.truth.chain(tenant, adapter.as_ref(), prompt);
        self.router_event(router, placement::Event::Arrive { request: ask.request, chain });
    }

    /// An operator has a worker pin, park or unpark what a request asks about.
    fn operate(&mut self, ask: usize) {
        let Ask { request, .. } = self.asks[ask].clone();
        let w = self.random.index(self.workers.len());
        let body = match self.random.index(4) {
            0 => prefix_ask::Body::Park(Nothing {}),
            1 => prefix_ask::Body::Unpark(Nothing {}),
            _ => prefix_ask::Body::Pin(self.random.millis(20, 400).as_millis() as u64),
        };
        self.trace.note(self.now, || format!("an operator asks w{w} about {}'s prompt: {body:?}", request.id));
        let (tenant, tokens) = (request.tenant.clone(), request.prompt.to_vec());
        let ask = worker_ask::Body::Prefix(PrefixAsk { tenant, tokens, body: Some(body) });
        self.mail_now(w, Inmail::Operator(WorkerAsk { body: Some(ask) }));
    }

    /// A client goes; whether it was there.
    pub(crate) fn hang_up(&mut self, request: RequestId) {
        let Some(client) = self.clients.get_mut(&request).filter(|client| client.outcome.is_none()) else { return };
        client.outcome = Some(Outcome::HungUp);
        let router = client.router;
        self.trace.note(self.now, || format!("the client of {request} hangs up"));
        for worker in 0..self.workers.len() {
            self.cover(FaultKind::HangUp, worker, |_, of| of == request);
        }
        if self.routers[router.0].life == router.1 {
            self.router_event(router.0, placement::Event::Gone { request });
        }
    }

    /// A stop string ends a choice for its client.
    fn stop_choice(&mut self, router: RouterIndex, life: Life, request: RequestId, choice: Choice) {
        if self.routers[router].life != life {
            return;
        }
        self.trace.note(self.now, || format!("a stop string ends {choice} of {request}"));
        self.router_event(router, placement::Event::StopChoice { request, choice });
    }
}
