//! The task that owns the placement. It turns notes of handlers and messages of workers into events, and executes the
//! commands. No other task decides anything about a request, and this task waits for no client and no worker.
//!
//! A client is gone when the receiver of its updates is: dropping the response, at whatever moment, is the whole of
//! hanging up. A client that reads too slowly fills its own updates only, and is then ended.

mod client;
mod fleet_load;
mod operator;
mod waterfall;

use crate::access::Access;
use crate::clock::Clock;
use crate::config::RouterLimits;
use crate::explained::{Explained, Names};
use crate::sessions::{LinkFull, Links, Service, WorkerLink};
pub(crate) use client::{Client, Held, Update, Updates};
use client::{Delivered, Meters};
use domain::session::{FromWorker, Report, Role, Served, Submit, ToWorker};
use domain::{BlockHash, Choice, End, Ender, Request, RequestId, Time, WorkerId};
use fleet_load::FleetLoad;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use operator::Asks;
pub(crate) use operator::{AskError, OperatorNote};
use placement::{Closing, Command, Counters, Event, Placement, PlacementConfig};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use telemetry::failpoint::{self, FailPoint};
use telemetry::metrics::{self, Gauge, Outcome, Stale};
use tokio::sync::{mpsc, oneshot, watch};

/// Notes of handlers that wait for the brain. When they are full, handlers wait.
pub(crate) const NOTES_MAX: usize = 1024;

/// What a handler tells the brain.
#[derive(Debug)]
pub(crate) enum Note {
    /// A request arrived.
    Arrive {
        /// The request.
        request: Arc<Request>,
        /// Identities of the full blocks of its prompt.
        chain: Vec<BlockHash>,
        /// The client that waits for it.
        client: Client,
        /// What the log will say of it.
        access: Arc<Access>,
    },
    /// A stop string ended a sequence.
    StopChoice {
        /// The request.
        request: RequestId,
        /// The sequence.
        choice: Choice,
    },
    /// A request is refused for want of room: after how long would it find some?
    Predict {
        /// Where the answer goes.
        reply: oneshot::Sender<Duration>,
    },
    /// An operator wants to know something, or asks something of a worker.
    Operator(OperatorNote),
}

/// How far the router's life has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Requests are taken.
    Serving,
    /// New requests are refused, open ones go on.
    Draining,
    /// Open requests are ended.
    Ending,
    /// The brain ends, and with it its sessions.
    Over,
}

/// Which workers are there: whether requests can be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fleet {
    /// Prefill workers that take requests.
    pub(crate) prefill: usize,
    /// Decode workers that take requests. Without one nothing can be served.
    pub(crate) decode: usize,
}

/// The brain's state; one task owns it.
pub(crate) struct Brain {
    clock: Clock,
    placement: Placement,
    links: Links,
    clients: HashMap<RequestId, Client>,
    /// One future per client, ready when its receiver is gone.
    gone: FuturesUnordered<BoxFuture<'static, RequestId>>,
    fleet: watch::Sender<Fleet>,
    /// Changes of the fleet that were published.
    fleet_changes: u64,
    /// Placement's counters, as far as metrics have them.
    counted: Counters,
    meters: Meters,
    /// What operators asked of workers.
    asks: Asks,
    /// Where each worker was dialed, and the version of the protocol that its session has.
    reached: BTreeMap<WorkerId, (String, u32)>,
    names: Names,
    load: FleetLoad,
    explained: Explained,
    limits: watch::Receiver<RouterLimits>,
    /// Blocks of the index and their bytes.
    index: [Gauge; 2],
    /// Reused by every event.
    commands: Vec<Command>,
}

impl Brain {
    /// Makes a brain without sessions, once it is known what the workers serve. `None`: the router's life is over
    /// before.
    pub(crate) async fn begin(
        clock: Clock,
        (config, limits): (PlacementConfig, watch::Receiver<RouterLimits>),
        fleet: watch::Sender<Fleet>,
        mut service: watch::Receiver<Option<Service>>,
        mut phase: watch::Receiver<Phase>,
    ) -> Option<Self> {
        metrics::requests_open().set(0.0);
        let service = tokio::select! {
            // An error says that nobody dials workers any more.
            Ok(service) = service.wait_for(Option::is_some) => (*service)?,
            _ = phase.wait_for(|&phase| phase == Phase::Over) => return None,
        };
        let Served { block_tokens, token_bytes, .. } = service.served;
        let config = PlacementConfig { block_tokens, token_bytes, ..config };
        Some(Self::new(clock, config, limits, fleet))
    }

    fn new(
        clock: Clock,
        config: PlacementConfig,
        mut limits: watch::Receiver<RouterLimits>,
        fleet: watch::Sender<Fleet>,
    ) -> Self {
        let now = *limits.borrow_and_update();
        let config = config.with(now.placement);
        show_index_budget(config.index_blocks_max);
        Self {
            clock,
            load: FleetLoad::new(config.block_tokens),
            placement: Placement::new(config),
            links: Links::default(),
            clients: HashMap::new(),
            gone: FuturesUnordered::new(),
            fleet,
            fleet_changes: 0,
            counted: Counters::default(),
            meters: Meters::new(),
            asks: Asks::default(),
            reached: BTreeMap::new(),
            names: Names::new(),
            explained: Explained::new(now.explained_max),
            limits,
            index: [metrics::router_index_blocks("used"), metrics::router_index_bytes("used")],
            commands: Vec::new(),
        }
    }

    /// Runs until the phase is [`Phase::Over`], or until no task is left that could change the phase.
    pub(crate) async fn run(
        mut self,
        mut links: mpsc::Receiver<WorkerLink>,
        mut notes: mpsc::Receiver<Note>,
        mut phase: watch::Receiver<Phase>,
    ) {
        loop {
            let deadline = self.placement.next_deadline();
            let tick = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(self.clock.instant(deadline)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((worker, message)) = self.links.next() => self.heard(worker, message),
                Some(link) = links.recv() => self.worker_up(link),
                Some(note) = notes.recv() => self.note(note),
                Some(request) = self.gone.next() => self.client_gone(request),
                changed = phase.changed() => {
                    let now = *phase.borrow_and_update();
                    if changed.is_err() || now == Phase::Over {
                        return;
                    }
                    if now == Phase::Ending {
                        self.end_all();
                    }
                }
                Ok(()) = self.limits.changed() => self.take_limits(),
                () = tick => self.handle(Event::Tick),
            }
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Arrive { request, chain, client, access } => {
                // A request that comes after a change is judged by it.
                if self.limits.has_changed().unwrap_or(false) {
                    self.take_limits();
                }
                let id = request.id;
                self.gone.push(client.gone(id));
                self.clients.insert(id, client);
                metrics::requests_open().set(self.clients.len() as f64);
                self.explained.arrived(self.clock.now(), &request, access);
                self.handle(Event::Arrive { request, chain });
            }
            Note::StopChoice { request, choice } => self.handle(Event::StopChoice { request, choice }),
            Note::Predict { reply } => {
                // A handler that ended meanwhile does not need it.
                let _ = reply.send(self.placement.retry_after());
            }
            Note::Operator(note) => self.operator(note),
        }
    }

    fn take_limits(&mut self) {
        let RouterLimits { explained_max, placement, .. } = *self.limits.borrow_and_update();
        self.explained.keep(explained_max);
        show_index_budget(placement.index_blocks_max);
        self.handle(Event::Limits(placement));
    }

    fn heard(&mut self, worker: WorkerId, message: Option<Vec<u8>>) {
        let Some(bytes) = message else {
            tracing::warn!(%worker, "the session ended");
            return self.worker_down(worker);
        };
        match proto::session::decode_from_worker(&bytes) {
            Ok(FromWorker::OperatorAnswer { number, answer }) => self.asks.answered(worker, number, answer),
            Ok(FromWorker::Phases { request, epoch, phases, left_out }) => {
                if let Some(name) = self.names.get(&worker) {
                    self.explained.measured(name, (request, epoch), phases, left_out);
                }
            }
            Ok(message) => {
                failpoint::pass(FailPoint::SessionGot, message.name());
                if let FromWorker::Report(report) = &message {
                    self.reported(worker, report);
                }
                self.handle(Event::Worker { id: worker, message });
            }
            Err(error) => {
                tracing::error!(%worker, %error, "a message cannot be read; the session is closed");
                self.worker_down(worker);
            }
        }
    }

    fn reported(&mut self, worker: WorkerId, report: &Report) {
        if let Some(role) = report.role {
            self.links.show_role(worker, role);
        }
        if let Some(role) = self.links.role(worker) {
            self.load.reported(worker, role, report);
        }
    }

    fn worker_up(&mut self, link: WorkerLink) {
        let (peer, context_tokens) = (link.peer.clone(), link.context_tokens);
        tracing::info!(worker = peer.name, role = ?peer.role, id = %peer.id, protocol = link.protocol, "a session began");
        self.asks.close(peer.id);
        self.reached.insert(peer.id, (link.address.clone(), link.protocol));
        self.names.insert(peer.id, peer.name.as_str().into());
        self.links.open(link);
        self.handle(Event::WorkerUp { peer, context_tokens });
    }

    /// Closes the session with a worker and replays elsewhere what it did.
    fn worker_down(&mut self, worker: WorkerId) {
        if self.close(worker) {
            self.handle(Event::WorkerDown { id: worker });
        }
    }

    /// Closes the session with a worker. Returns whether it was open.
    fn close(&mut self, worker: WorkerId) -> bool {
        self.asks.close(worker);
        self.reached.remove(&worker);
        self.names.remove(&worker);
        self.load.gone(worker);
        self.links.close(worker)
    }

    fn client_gone(&mut self, request: RequestId) {
        if self.forget(request, Outcome::Client).is_some() {
            tracing::debug!(%request, "the client hung up");
            self.handle(Event::Gone { request });
        }
    }

    /// Ends every open request in the service's name.
    fn end_all(&mut self) {
        let open: Vec<RequestId> = self.clients.keys().copied().collect();
        for request in open {
            self.end_by_us(request, "it is shutting down");
        }
    }

    fn end_by_us(&mut self, request: RequestId, why: &str) {
        let end = End::error(Ender::Us, why);
        self.explained.ends(request, &end);
        if let Some(client) = self.forget(request, Outcome::of(&end)) {
            client.end(end, 0);
            self.handle(Event::Gone { request });
        }
    }

    fn forget(&mut self, request: RequestId, outcome: Outcome) -> Option<Client> {
        let client = self.clients.remove(&request)?;
        metrics::requests(outcome).increment(1);
        metrics::requests_open().set(self.clients.len() as f64);
        metrics::request_time().record(self.clock.now().since(client.arrived()).as_secs_f64());
        Some(client)
    }

    /// Gives an event to the placement and does what it says, and what follows from that.
    fn handle(&mut self, event: Event) {
        let now = self.clock.now();
        let mut commands = std::mem::take(&mut self.commands);
        let (mut slow, mut told) = (BTreeSet::new(), Told::default());
        let mut next = Some(event);
        while let Some(event) = next {
            self.placement.handle(now, event, &mut commands);
            for command in commands.drain(..) {
                self.obey(now, command, &mut slow, &mut told);
            }
            next = told.unsent.pop_front();
        }
        self.commands = commands;
        self.count();
        self.tell_fleet();
        for request in slow {
            tracing::info!(%request, "the client reads too slowly");
            self.end_by_us(request, "the client reads too slowly, and its buffer of tokens is full");
        }
        for worker in told.stuck {
            tracing::error!(%worker, "the worker takes no messages; the session is closed");
            self.worker_down(worker);
        }
        // Those that were refused since are here no more: their clients learn that by the status.
        for (request, prompt_tokens) in told.attempts {
            if self.clients.get_mut(&request).is_some_and(Client::placed) {
                metrics::prompt_tokens().increment(prompt_tokens);
            }
        }
    }

    fn obey(&mut self, now: Time, command: Command, slow: &mut BTreeSet<RequestId>, told: &mut Told) {
        match command {
            Command::Send { worker, mut message } => {
                if let ToWorker::Submit(submit) = &mut message {
                    submit.trace = self.explained.trace(submit.request);
                    submit.timed = self.explained.wants_phases();
                    let decision = self.placement.explain(submit.request);
                    self.explained.submitted(now, worker, submit, decision, &self.names);
                }
                self.send(worker, &message, told);
            }
            Command::Close { worker, why } => {
                match why {
                    Closing::Silent => tracing::warn!(%worker, "the worker is silent; the session is closed"),
                    Closing::Drained => {
                        self.links.show_left(worker);
                        tracing::info!(%worker, "the worker drained and may end; the session is closed");
                    }
                }
                self.close(worker);
            }
            Command::Token { request, choice, row } => {
                self.explained.token(now, request, choice);
                if let Some(client) = self.clients.get_mut(&request)
                    && client.token(now, choice, row, &self.meters) == Delivered::Full
                {
                    slow.insert(request);
                }
            }
            Command::ChoiceEnd { request, choice, end } => {
                if let Some(client) = self.clients.get_mut(&request)
                    && client.choice_end(choice, end) == Delivered::Full
                {
                    slow.insert(request);
                }
            }
            Command::End { request, end, usage } => {
                self.explained.ended(now, request, &end, &usage);
                // Whoever hung up had its prompt counted, too.
                metrics::cached_tokens().increment(u64::from(usage.cached_tokens));
                // Of an answer that did not fit as a whole, the end is that of a client that reads too slowly.
                if !slow.contains(&request)
                    && let Some(client) = self.forget(request, Outcome::of(&end))
                {
                    client.end(end, usage.cached_tokens);
                }
            }
            Command::Reject { request, why, detail } => {
                self.explained.rejected(now, request, &detail);
                if let Some(client) = self.forget(request, Outcome::Rejected) {
                    client.reject(why, detail);
                }
            }
        }
    }

    fn send(&self, worker: WorkerId, message: &ToWorker, told: &mut Told) {
        // A session that this very event found stuck is closed after it: the rest of its messages have no taker.
        if told.stuck.contains(&worker) {
            return;
        }
        let bytes = proto::session::encode_to_worker(message);
        if let &ToWorker::Submit(Submit { request, epoch, ref prompt, .. }) = message {
            if self.links.submit(worker, bytes) == Err(LinkFull) {
                if self.links.is_over(worker) {
                    return told.stuck.push(worker);
                }
                told.unsent.push_back(Event::Unsent { worker, request, epoch });
                return;
            }
            told.attempts.push((request, prompt.len() as u64));
        } else if self.links.send(worker, bytes) == Err(LinkFull) {
            told.stuck.push(worker);
        }
        failpoint::pass(FailPoint::SessionSent, message.name());
    }

    /// Brings the metrics up to the placement's counters and index.
    fn count(&mut self) {
        let now = *self.placement.counters();
        let last = std::mem::replace(&mut self.counted, now);
        for (counter, now, last) in [
            (metrics::replays as fn() -> _, now.replays, last.replays),
            (metrics::moves, now.moves, last.moves),
            (|| metrics::stale_messages(Stale::Epoch), stale(&now), stale(&last)),
            (|| metrics::stale_messages(Stale::Duplicate), now.duplicate_rows, last.duplicate_rows),
        ] {
            if now > last {
                counter().increment(now - last);
            }
        }
        let [blocks, bytes] = &self.index;
        blocks.set(self.placement.indexed_blocks() as f64);
        bytes.set(self.placement.index_bytes() as f64);
        self.load.show(self.placement.waiting());
    }

    /// Publishes which workers are there, if that changed.
    fn tell_fleet(&mut self) {
        let changes = self.placement.fleet_changes();
        if std::mem::replace(&mut self.fleet_changes, changes) == changes {
            return;
        }
        let mut fleet = Fleet::default();
        for worker in self.placement.workers() {
            match worker.role {
                _ if worker.draining => {}
                Role::Prefill => fleet.prefill += 1,
                Role::Decode => fleet.decode += 1,
            }
        }
        self.fleet.send_if_modified(|known| std::mem::replace(known, fleet) != fleet);
    }
}

fn show_index_budget(blocks_max: usize) {
    metrics::router_index_blocks("budget").set(blocks_max as f64);
    metrics::router_index_bytes("budget").set(Placement::index_bytes_max(blocks_max) as f64);
}

/// What workers were told, and could not be.
#[derive(Default)]
struct Told {
    /// Requests of which a worker was told of an attempt, and the tokens of their prompts.
    attempts: Vec<(RequestId, u64)>,
    /// Attempts that a full worker was not told of.
    unsent: VecDeque<Event>,
    /// Workers that take nothing at all.
    stuck: Vec<WorkerId>,
}

/// Rows and other messages of what is over.
fn stale(counters: &Counters) -> u64 {
    counters.stale_rows + counters.stale_messages
}
