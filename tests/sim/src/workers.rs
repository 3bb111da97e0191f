//! Worker processes: their lives, their mail, their steps, and what their machines ask of the world.

use crate::coverage::message_kind;
use crate::event::{Event, Life, WorkerIndex};
use crate::fault::FaultKind;
use crate::invariants::{
    answer, blame, bounds, conservation, culprit, idle, leases, line, needless, plans, quotas, renewal, reuse, sealed,
    source, tenants, waits,
};
use crate::lease::TICK;
use crate::operators::Duty;
use crate::pool::Pool;
use crate::process::{Inmail, Running, WorkerLife};
use crate::reach::Reached;
use crate::scenario::Scenario;
use crate::session::{Direction, Frame};
use crate::shell::{Card, Output, Shell, Wire};
use crate::world::{POISON, World};
use decode_worker::Decode;
use domain::handoff::{PeerBody, PeerMessage};
use domain::plan::StepOutput;
use domain::planted_bugs::{self, Bug};
use domain::session::{Failure, FromWorker, Role, Submit, ToWorker};
use domain::{Encoding, Incarnation, LeaseId, ProgressWord, Time, WorkerId};
use engine::check::Checker;
use engine::device::{DeviceLimits, PoolMemory};
use engine::sim::{CostModel, Preset, SimModel};
use engine::slots::DeviceSlots;
use prefill_worker::Prefill;
use proto::admin::{Message, PrefixOutcome, WorkerAnswer, worker_answer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use transport::{AgentEvent, Lane, LaneStatus, Probe, Staging};
use worker::{Inbound, Machine, SessionId, WorkerConfig};

/// Events that a loop handles before its next turn.
const EVENTS_PER_ROUND_MAX: usize = 512;
/// The card whose times are taken.
const PRESET: &str = "h100-8b";

impl World {
    /// A worker's next life begins.
    pub(crate) fn start_worker(&mut self, w: WorkerIndex) {
        let worker = &mut self.workers[w];
        worker.life += 1;
        let life = worker.life;
        let layout = &self.scenario.layout;
        let bytes = |group: usize| layout.record_bytes(group) * self.scenario.blocks[group] as usize;
        let pools: Vec<Arc<Pool>> =
            (0..layout.groups.len()).map(|group| Arc::new(Pool::zeroed(bytes(group)))).collect();
        let shared = pools.iter().map(|pool| pool.clone() as Arc<dyn PoolMemory>).collect();
        let model =
            SimModel::new(layout.clone(), Scenario::vocabulary(), shared).expect("the layout has room for tags");
        let context = self.scenario.caps.contexts.get(w).copied().unwrap_or(usize::MAX);
        let limits = DeviceLimits {
            rows_max: self.scenario.scheduler.step_tokens_max as usize,
            outputs_max: self.scenario.scheduler.samples_max as usize,
            context_max: context,
            blocks: self.scenario.blocks.clone(),
            slots_max: self.scenario.scheduler.samples_max as usize,
        };
        let slots = DeviceSlots::new(limits.slots_max, layout.groups.len());
        let checker = Checker::new(layout.clone(), limits.clone(), Scenario::vocabulary().size() as usize);
        let (shell, progress) = (Shell::new(&self.scenario.caps), ProgressWord::new());
        let raises = shell.clone();
        let rings = progress.on_raise(Box::new(move |_| raises.notes().raised = true));
        assert!(rings, "nobody else watches it");
        let card = Card {
            shell: shell.clone(),
            layout: layout.clone(),
            limits,
            checker: checker.with_adapters(vec![Scenario::adapter()]),
            pools: pools.clone(),
            progress: progress.clone(),
            adapters: [Scenario::adapter()],
        };
        let config = config(&self.scenario, worker.id, life);
        let wire = Box::new(Wire(shell.clone()));
        let machine = Machine::new(config, make_role(worker.role), Box::new(card), wire);
        let machine = machine.expect("the scheduler's settings agree").with_roles(worker.role, make_role);
        let machine = self.tiers(w, &shell).into_iter().fold(machine, Machine::with_tier);
        let duty = Duty::of(self.workers[w].role);
        (self.workers[w].wanted, self.workers[w].operated) = (duty, false);
        self.workers[w].alive = Some(WorkerLife {
            machine,
            duties: vec![duty],
            shell,
            pools,
            progress,
            model,
            slots,
            context,
            running: None,
            fails_in: None,
            poisoned: false,
            inbox: VecDeque::new(),
            wakes: Time::MAX,
            turned: self.now,
            stuck: false,
            sockets: None,
            unread: VecDeque::new(),
            drains: false,
            sessions: 0,
            session_keys: BTreeMap::new(),
            parts: BTreeMap::new(),
            validated: BTreeSet::new(),
            reads_fail: 0,
            checked: sealed::Checked::default(),
            before: quotas::Before::default(),
            waits: waits::Since::default(),
            line: line::Line::default(),
            missed: idle::Missed::default(),
        });
        self.trace.note(self.now, || format!("w{w} begins its life {life}"));
        self.wake_at(w, self.now);
        self.register_later(w);
    }

    /// A worker dies with its memory. `told`: the other ends of its sessions see it.
    pub(crate) fn kill_worker(&mut self, w: WorkerIndex, told: bool) {
        let Some(mut dead) = self.workers[w].alive.take() else { return };
        let life = self.workers[w].life;
        self.trace.note(self.now, || format!("w{w} dies{}", if told { "" } else { ", and nobody is told" }));
        // The machine is not to say its last words.
        dead.session_keys.clear();
        drop(dead);
        self.lapse_later(w);
        self.reads.retain(|_, read| read.reader != (w, life));
        let read: Vec<_> = self.reads.iter().filter(|(_, read)| read.owner == (w, life)).map(|(&key, _)| key).collect();
        read.into_iter().for_each(|key| self.fail_read(key));
        let id = self.workers[w].id;
        for other in 0..self.workers.len() {
            let Some(alive) = &self.workers[other].alive else { continue };
            if alive.shell.notes().connected.remove(&id) {
                let (worker, life) = (other, self.workers[other].life);
                let at = self.now + self.latency();
                self.agenda.enter(at, Event::Connect { worker, life, peer: id, reached: false });
            }
        }
        let open = self.sessions.iter().filter(|(_, session)| session.worker == (w, life)).map(|(&key, _)| key);
        for key in open.collect::<Vec<_>>() {
            self.end_of_worker(key, told);
        }
    }

    /// Puts something into a worker's inbox, if it is in that life.
    pub(crate) fn mail(&mut self, w: WorkerIndex, life: Life, mail: Inmail) {
        if self.workers[w].life == life {
            self.mail_now(w, mail);
        }
    }

    /// Puts something into the inbox of a worker, whichever life it is in.
    pub(crate) fn mail_now(&mut self, w: WorkerIndex, mail: Inmail) {
        let Some(alive) = &mut self.workers[w].alive else { return };
        if let Some(sockets) = alive.sockets.as_mut().filter(|_| !matches!(mail, Inmail::StepEnded)) {
            return sockets.push_back(mail);
        }
        let is_full = alive.inbox.len() >= self.scenario.caps.inbox;
        match mail {
            Inmail::Peer(..) if is_full => {
                self.trace.note(self.now, || format!("w{w} has no room for a message"));
                return self.coverage.reach(Reached::InboxDropped);
            }
            Inmail::Session(key, _) if is_full || !alive.unread.is_empty() => {
                alive.unread.push_back(mail);
                self.trace.note(self.now, || format!("w{w} has no room for session {key}, and reads it later"));
                return self.coverage.reach(Reached::SessionUnread);
            }
            mail => alive.inbox.push_back(mail),
        }
        let at = self.now + self.random.micros(0, 20);
        self.wake_at(w, at);
    }

    /// A process that stood still hears what came for it meanwhile.
    pub(crate) fn open_sockets(&mut self, w: WorkerIndex, life: Life) {
        let worker = &mut self.workers[w];
        let awake = worker.alive.as_mut().filter(|alive| worker.life == life && !alive.stuck);
        let sockets = awake.and_then(|alive| alive.sockets.take());
        sockets.into_iter().flatten().for_each(|mail| self.mail_now(w, mail));
    }

    /// Has a worker wake at a time at the latest.
    pub(crate) fn wake_at(&mut self, w: WorkerIndex, at: Time) {
        let life = self.workers[w].life;
        let Some(alive) = &mut self.workers[w].alive else { return };
        if at < alive.wakes {
            alive.wakes = at;
            self.agenda.enter(at, Event::Wake { worker: w, life });
        }
    }

    /// A round of a step loop: what came in, and a turn.
    pub(crate) fn wake(&mut self, w: WorkerIndex, life: Life) {
        let now = self.now;
        if self.workers[w].life != life {
            return;
        }
        let Some(alive) = self.workers[w].alive.as_mut().filter(|alive| alive.wakes == now) else { return };
        alive.wakes = Time::MAX;
        if alive.stuck {
            return;
        }
        let (idle, last) = (alive.inbox.is_empty(), std::mem::replace(&mut alive.turned, now));
        waits::stood_still(&mut alive.waits, now.since(last).saturating_sub(TICK));
        self.leases.turns(now, (w, life), last);
        for _ in 0..EVENTS_PER_ROUND_MAX {
            let Some(mail) = self.workers[w].alive.as_mut().and_then(|alive| alive.inbox.pop_front()) else { break };
            self.open_mail(w, mail);
        }
        let inbox_max = self.scenario.caps.inbox;
        let Some(alive) = self.workers[w].alive.as_mut() else { return };
        let room = inbox_max.saturating_sub(alive.inbox.len()).min(alive.unread.len());
        alive.inbox.extend(alive.unread.drain(..room));
        if idle {
            alive.machine.collect(now);
        }
        alive.machine.turn(now);
        self.obey(w, None);
        self.look_at(w);
        self.note_reached(w);
        let Some(alive) = &self.workers[w].alive else { return };
        if alive.drains && alive.machine.core().is_drained() {
            return self.end_worker(w);
        }
        let soonest = now + Duration::from_micros(1);
        let at = if alive.inbox.is_empty() { alive.machine.next_deadline(now).max(soonest) } else { soonest };
        self.wake_at(w, at);
        self.strike_in_step(w);
    }

    /// A drained worker ends in order: its routers learn of every attempt that is open.
    pub(crate) fn end_worker(&mut self, w: WorkerIndex) {
        let Some(alive) = &mut self.workers[w].alive else { return };
        self.trace.note(self.now, || format!("w{w} ends"));
        alive.machine.end();
        self.obey(w, None);
        self.unlist(w, self.workers[w].life);
        self.kill_worker(w, true);
        let process = self.worker_process(w);
        let at = self.now + self.random.millis(5, 300);
        self.agenda.enter(at, Event::Return { process });
    }

    pub(crate) fn drain_deadline(&mut self, w: WorkerIndex, life: Life) {
        if self.workers[w].life == life {
            self.end_worker(w);
        }
    }

    /// A machine handles one event.
    fn open_mail(&mut self, w: WorkerIndex, mail: Inmail) {
        let now = self.now;
        let (mut released, mut renewed) = (None, None);
        let inbound = match mail {
            Inmail::Opened(key) => match self.opened(w, key) {
                Some(opened) => opened,
                None => return,
            },
            Inmail::Session(key, bytes) => {
                let message = proto::session::decode_to_worker(&bytes).expect("a router speaks the protocol");
                self.trace.note(now, || format!("w{w} gets {}", brief(&message)));
                if let ToWorker::Submit(submit) = &message {
                    self.meet(w, submit);
                }
                let Some(alive) = &mut self.workers[w].alive else { return };
                if let ToWorker::Submit(submit) = &message {
                    alive.parts.insert((submit.request, submit.epoch), submit.assignment);
                }
                let session = alive.session_keys.iter().find(|(_, of)| **of == key).map(|(&id, _)| id);
                let Some(session) = session else { return };
                Inbound::Session { session, bytes }
            }
            Inmail::Peer(from, bytes) => {
                let message = proto::handoff::decode(&bytes).expect("a worker speaks the protocol");
                self.trace.note(now, || format!("w{w} gets from {from} {:?}", message.body));
                renewed = renewal::expect(self, w, &message);
                released = self.foresee(w, &message);
                Inbound::Agent(AgentEvent::Message { from, bytes })
            }
            Inmail::Ended(completion) => Inbound::Agent(AgentEvent::Ended(completion)),
            Inmail::Connected(peer) => {
                let probe = Probe { bytes_per_s: 1e9, latency_s: 1e-5 };
                let status = LaneStatus {
                    peer: peer.to_string(),
                    lane: Lane::Tcp,
                    tls: false,
                    encoding: Encoding::Exact,
                    staging: Staging::default(),
                    probe,
                    expected_bytes_per_s: None,
                    passed_over: Vec::new(),
                };
                Inbound::Agent(AgentEvent::Connected { peer, status })
            }
            Inmail::Lost(peer) => Inbound::Agent(AgentEvent::Lost { peer, reason: "it is gone".to_owned() }),
            Inmail::Moved(end) => {
                self.hear_of_move(w, &end);
                Inbound::Tier(end)
            }
            Inmail::Operator(ask) => {
                let Some(alive) = &self.workers[w].alive else { return };
                let shell = alive.shell.clone();
                Inbound::Operator { ask, reply: Box::new(move |answer| shell.notes().answers.push(answer)) }
            }
            Inmail::StepEnded => Inbound::StepEnded,
            Inmail::Drain => Inbound::Drain,
        };
        let Some(alive) = &mut self.workers[w].alive else { return };
        let end = alive.machine.handle_event(now, inbound);
        assert!(end.is_continue(), "nobody shuts it down");
        if let Some(Err(what)) = renewed.map(|lease| renewal::check(self, w, lease)) {
            self.violated(renewal::NAME, format!("w{w}: {what}"));
        }
        self.obey(w, released);
    }

    /// A session begins for a worker.
    fn opened(&mut self, w: WorkerIndex, key: u64) -> Option<Inbound> {
        let max = self.scenario.network.session_frames_max;
        let session = self.sessions.get_mut(&key)?;
        let alive = self.workers[w].alive.as_mut()?;
        session.id = SessionId(alive.sessions);
        alive.sessions += 1;
        alive.session_keys.insert(session.id, key);
        let send = alive.shell.session_send(key, session.to_router.in_flight.clone(), max);
        Some(Inbound::Opened { session: session.id, send, ended: session.ended.clone() })
    }

    /// What the world notes of a peer's message before it is handled. The answer that a release should get.
    fn foresee(&mut self, w: WorkerIndex, message: &PeerMessage) -> Option<answer::Expected> {
        let life = self.workers[w].life;
        if message.to_incarnation.is_some_and(|to| to != Incarnation(life)) {
            return None;
        }
        match message.body {
            PeerBody::Renew { lease, ticks } => {
                let current = self.workers[self.worker_index(message.from)].life == message.from_incarnation.0;
                self.leases.renewed(self.now, (w, life, lease), message.from, ticks, current);
                None
            }
            PeerBody::Release { lease } => answer::expect(self, w, message.from, lease),
            PeerBody::Released { lease, valid: true } => {
                let owner = (self.worker_index(message.from), message.from_incarnation.0, lease);
                let reader = (self.workers[w].id, life);
                let lease = self.leases.get(owner).filter(|lease| (lease.reader, lease.reader_life) == reader);
                let attempt = lease.map(|lease| (lease.request, lease.epoch));
                if let (Some(attempt), Some(alive)) = (attempt, &mut self.workers[w].alive) {
                    alive.validated.insert(attempt);
                }
                None
            }
            _ => None,
        }
    }

    /// Does what a machine asked for.
    fn obey(&mut self, w: WorkerIndex, mut released: Option<answer::Expected>) {
        loop {
            let Some(alive) = &mut self.workers[w].alive else { return };
            let mut notes = alive.shell.notes();
            let outputs = std::mem::take(&mut notes.outputs);
            let reached = std::mem::take(&mut notes.reached);
            let answers = std::mem::take(&mut notes.answers);
            drop(notes);
            answers.iter().for_each(|answer| self.operator_answered(w, answer));
            reached.into_iter().chain(answers.iter().filter_map(answered)).for_each(|it| self.coverage.reach(it));
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                self.do_as_told(w, output, &mut released);
            }
        }
        if self.workers[w].alive.as_ref().is_some_and(|alive| std::mem::take(&mut alive.shell.notes().raised)) {
            self.word_raised(w);
        }
        self.begin_step(w);
    }

    fn do_as_told(&mut self, w: WorkerIndex, output: Output, released: &mut Option<answer::Expected>) {
        match output {
            Output::Connect(peer) => {
                let (from, to) = (self.worker_process(w), self.worker_process(self.worker_index(peer)));
                let reached = self.workers[self.worker_index(peer)].alive.is_some()
                    && !self.is_blocked(from, to)
                    && !self.is_blocked(to, from);
                let wait = if reached { self.latency() * 2 } else { self.random.millis(1, 50) };
                let life = self.workers[w].life;
                self.agenda.enter(self.now + wait, Event::Connect { worker: w, life, peer, reached });
            }
            Output::Message { to, bytes } => self.send_to_peer(w, to, bytes, released),
            Output::Untaken { bytes } => {
                // A withdrawal counts whether its reader hears of it or not.
                let message = proto::handoff::decode(&bytes).expect("a worker speaks the protocol");
                if let PeerBody::Withdraw { lease } = message.body {
                    self.leases.withdrawn((w, self.workers[w].life, lease));
                }
            }
            Output::Read { id, from, batches } => {
                self.trace.note(self.now, || {
                    let bytes: usize = batches.iter().map(|batch| batch.len * batch.copies.count() as usize).sum();
                    format!("w{w} reads {bytes} bytes of {from} as {}", id.0)
                });
                self.post(w, id, from, batches);
            }
            Output::Cancel(id) => self.cancel_read(w, id),
            Output::Move(what) => self.begin_move(w, what),
            Output::CancelLoad(key) => self.cancel_moves(w, key),
            Output::Session { session, bytes } => {
                let message = proto::session::decode_from_worker(&bytes).expect("a worker speaks the protocol");
                if !matches!(message, FromWorker::Heartbeat | FromWorker::Report(_)) {
                    self.trace.note(self.now, || format!("w{w} says {message:?}"));
                }
                self.told(w, &message);
                let found = culprit::check(self, &message)
                    .map_err(|what| (culprit::NAME, what))
                    .and_then(|()| blame::check(self, w, &message).map_err(|what| (blame::NAME, what)))
                    .and_then(|()| needless::said(self, w, &message).map_err(|what| (needless::NAME, what)));
                if let Err((name, what)) = found {
                    self.violated(name, format!("w{w}: {what}"));
                }
                if let FromWorker::Tokens(rows) = &message
                    && let Err((name, what)) = source::check(self, w, rows)
                {
                    self.violated(name, what);
                }
                self.send_frame(session, Direction::ToRouter, Frame::Bytes(bytes));
            }
            Output::SessionClosed(key) => {
                if let Some(session) = self.sessions.get_mut(&key) {
                    session.worker_open = false;
                    self.send_frame(key, Direction::ToRouter, Frame::End);
                }
            }
        }
    }

    /// A message between workers leaves, and may be lost, doubled or late on its way.
    fn send_to_peer(&mut self, w: WorkerIndex, to: WorkerId, bytes: Vec<u8>, released: &mut Option<answer::Expected>) {
        let message = proto::handoff::decode(&bytes).expect("a worker speaks the protocol");
        self.trace.note(self.now, || format!("w{w} to {to}: {:?}", message.body));
        self.witness(w, to, &message, released);
        let (from, receiver) = (self.workers[w].id, self.worker_index(to));
        if self.is_blocked(self.worker_process(w), self.worker_process(receiver)) {
            return;
        }
        let (chaos, kind) = (self.chaos, message_kind(&message.body));
        if self.random.chance(chaos.loss) {
            self.trace.note(self.now, || format!("lost: {kind} of w{w} to {to}"));
            return self.coverage.hit_message(FaultKind::MessageLoss, kind);
        }
        let mut arrives = vec![self.now + self.latency()];
        if self.random.chance(chaos.twice) {
            self.coverage.hit_message(FaultKind::MessageTwice, kind);
            arrives.push(self.now + self.latency() + self.random.millis(0, 300));
        }
        if self.random.chance(chaos.delay) {
            self.coverage.hit_message(FaultKind::MessageDelay, kind);
            arrives[0] = arrives[0] + self.random.millis(1, 200);
        }
        if self.healed.is_some() || self.scenario.is_harmless() {
            // A control channel that nothing is wrong with keeps the order.
            let last = self.peer_last.entry((w, receiver)).or_default();
            *last = arrives[0].max(*last);
            arrives[0] = *last;
        }
        for at in arrives {
            self.agenda.enter(at, Event::Peer { from, to: receiver, bytes: bytes.clone() });
        }
    }

    /// What the world notes of a message that a worker sends.
    fn witness(
        &mut self,
        w: WorkerIndex,
        to: WorkerId,
        message: &PeerMessage,
        released: &mut Option<answer::Expected>,
    ) {
        let life = self.workers[w].life;
        let lease = |id: LeaseId| (w, life, id);
        match &message.body {
            PeerBody::Offer(offer) => {
                // The owner may not know yet that its reader came back.
                let known = message.to_incarnation.map(|life| life.0);
                let reader = (to, known.unwrap_or(self.workers[self.worker_index(to)].life));
                let Some(alive) = &self.workers[w].alive else { return };
                let attempts = alive.machine.core().attempts().filter(|(request, ..)| *request == offer.request);
                let latest = self.now + self.scenario.offer_max;
                // Cached blocks are offered to whoever asks, for no attempt of the owner's.
                let cached = offer.ready == offer.tokens;
                let deadline = attempts.map(|(.., attempt)| attempt.deadline).min().or(cached.then_some(latest));
                if let Err(what) = tenants::offered(self, w, offer) {
                    return self.violated(tenants::NAME, format!("w{w}: {what}"));
                }
                self.leases.offered(self.now, (w, life), reader, offer, latest, deadline);
            }
            PeerBody::Withdraw { lease: id } => self.leases.withdrawn(lease(*id)),
            PeerBody::Complete { lease: id, first, .. } => {
                // Nothing goes on where every choice has ended, and nobody takes anything over.
                self.leases.get_mut(lease(*id)).into_iter().for_each(|lease| lease.complete = !first.is_empty());
            }
            PeerBody::Released { lease: id, valid } => {
                if let Some(expected) = released.take_if(|expected| expected.lease == *id)
                    && let Err(what) = answer::check(self, w, &expected, *valid)
                {
                    self.violated(answer::NAME, what);
                }
            }
            PeerBody::Ask(_)
            | PeerBody::Decline { .. }
            | PeerBody::Expect { .. }
            | PeerBody::Queued { .. }
            | PeerBody::Written { .. }
            | PeerBody::Renew { .. }
            | PeerBody::Release { .. }
            | PeerBody::ReleaseAck { .. } => {}
        }
    }

    pub(crate) fn connected(&mut self, w: WorkerIndex, life: Life, peer: WorkerId, reached: bool) {
        if self.workers[w].life != life {
            return;
        }
        let reached = reached && self.workers[self.worker_index(peer)].alive.is_some();
        let Some(alive) = &self.workers[w].alive else { return };
        if reached {
            alive.shell.notes().connected.insert(peer);
        } else {
            alive.shell.notes().connected.remove(&peer);
        }
        self.mail_now(w, if reached { Inmail::Connected(peer) } else { Inmail::Lost(peer) });
    }

    // -- the device

    fn begin_step(&mut self, w: WorkerIndex) {
        let life = self.workers[w].life;
        let Some(alive) = &mut self.workers[w].alive else { return };
        if alive.running.is_some() {
            return;
        }
        let Some(plan) = alive.shell.notes().submitted.pop_front() else { return };
        let cost = CostModel::new(Preset::named(PRESET).expect("the preset is there"));
        let time = cost.step(&plan).at_speed(self.scenario.speed);
        let layers = alive.model.layers();
        // Beyond the last layer: the step succeeds, but for one of its spans.
        let fails = alive.fails_in.take_if(|fails| *fails >= layers && !plan.spans.is_empty());
        alive.shell.notes().skipped.drain(..).for_each(|plan| alive.slots.take_over(&plan));
        alive.slots.take_over(&plan);
        alive.model.begin(&plan, fails.map(|_| plan.step.0 as usize % plan.spans.len()));
        if alive.fails_in.is_none() && plan.spans.iter().any(|span| Some(span.key.request) == self.scenario.poison) {
            alive.fails_in = Some(layers - 1);
            alive.poisoned = true;
            if plan.spans.iter().any(|span| Some(span.key.request) != self.scenario.poison) {
                self.coverage.reach(Reached::PoisonWithOthers);
            }
        }
        let found = idle::begins(alive, &plan, self.scenario.scheduler.running_max);
        alive.running = Some(Running { plan, time, begin: self.now, layer: 0 });
        self.longest_step = self.longest_step.max(time.total(layers));
        if let Err(what) = found {
            self.violated(idle::NAME, format!("w{w}: {what}"));
        }
        self.agenda.enter(self.now + time.written(0), Event::Layer { worker: w, life });
    }

    /// A device comes to the end of a layer, or of its step. It goes on while its worker's loop stands still.
    pub(crate) fn layer(&mut self, w: WorkerIndex, life: Life) {
        if self.workers[w].life != life {
            return;
        }
        let Some(alive) = &mut self.workers[w].alive else { return };
        let Some(step) = &mut alive.running else { return };
        let layers = alive.model.layers();
        let (plan, time, begin, layer) = (step.plan.clone(), step.time, step.begin, step.layer);
        let outputs = if alive.fails_in.take_if(|fails| *fails < layers && *fails <= layer).is_some() {
            alive.model.fail();
            let why = if std::mem::take(&mut alive.poisoned) { POISON } else { "the step was made to fail" };
            Err(format!("{why} in layer {layer}"))
        } else if layer < layers {
            step.layer += 1;
            alive.model.write_layer(&plan, &alive.slots, layer);
            alive.progress.raise(plan.step, layer);
            let next = if layer + 1 < layers { time.written(layer + 1) } else { time.total(layers) };
            self.agenda.enter(begin + next, Event::Layer { worker: w, life });
            return self.obey(w, None);
        } else {
            Ok(alive.model.outputs(&plan, &alive.slots, &[]))
        };
        let elapsed = self.now.since(begin);
        let output = StepOutput::new(plan.step, outputs, elapsed, elapsed);
        alive.running = None;
        let mut notes = alive.shell.notes();
        let is_behind = output.sampled.is_err() && !planted_bugs::is(Bug::SuccessorRuns);
        notes.ended.push_back(output);
        if is_behind {
            let behind: Vec<_> = notes.submitted.drain(..).collect();
            if !behind.is_empty() {
                self.coverage.reach(Reached::FailedWithSuccessor);
            }
            behind.into_iter().for_each(|plan| notes.skip(plan));
        }
        drop(notes);
        self.mail_now(w, Inmail::StepEnded);
        self.begin_step(w);
    }

    // -- what is reached

    /// A worker says something to a router.
    fn told(&mut self, w: WorkerIndex, message: &FromWorker) {
        match message {
            &FromWorker::Failed { why: Failure::QueueFull, request, epoch, .. } => {
                let by_operator = needless::is_operators_will(self, w, (request, epoch));
                self.coverage.reach(if by_operator { Reached::OperatorRefused } else { Reached::QueueFull });
            }
            FromWorker::OperatorAnswer { answer, .. } => {
                let answer = WorkerAnswer::decode(&answer[..]).expect("a worker speaks the protocol");
                self.operator_answered(w, &answer);
            }
            FromWorker::Failed { why: Failure::TooLarge, .. } => self.coverage.reach(Reached::TooLarge),
            FromWorker::Tokens(rows) => {
                for row in rows {
                    let params = self.clients.get(&row.key.request).map(|client| &client.ask.request.params);
                    let history = params.is_some_and(|params| params.needs_history());
                    let reached = [(row.logprobs.is_some(), Reached::Logprobs), (history, Reached::History)];
                    reached.into_iter().filter(|(it, _)| *it).for_each(|(_, it)| self.coverage.reach(it));
                }
            }
            _ => {}
        }
    }

    /// What a worker that had its turn has reached.
    fn note_reached(&mut self, w: WorkerIndex) {
        let Some(alive) = &self.workers[w].alive else { return };
        let stats = alive.machine.core().kv.stats();
        let reached = [
            (alive.machine.core().backlog() > 0, Reached::OutboxWaits),
            (stats.iter().any(|stats| stats.parked > 0), Reached::Parked),
            (stats.iter().any(|stats| stats.cold > 0), Reached::Cold),
        ];
        reached.into_iter().filter(|(it, _)| *it).for_each(|(_, it)| self.coverage.reach(it));
    }

    // -- invariants

    /// Holds a worker that had its turn against what must always be so.
    fn look_at(&mut self, w: WorkerIndex) {
        let deep = self.random.chance(30);
        let found = conservation::check(self, w, deep)
            .map_err(|what| (conservation::NAME, what))
            .and_then(|()| leases::check(self, w).map_err(|what| (leases::NAME, what)))
            .and_then(|()| reuse::check(self, w).map_err(|what| (reuse::NAME, what)))
            .and_then(|()| sealed::check(self, w, deep).map_err(|what| (sealed::NAME, what)))
            .and_then(|()| tenants::check(self, w, deep).map_err(|what| (tenants::NAME, what)))
            .and_then(|()| waits::check(self, w).map_err(|what| (waits::NAME, what)))
            .and_then(|()| line::check(self, w).map_err(|what| (line::NAME, what)))
            .and_then(|()| idle::check(self, w).map_err(|what| (idle::NAME, what)))
            .and_then(|()| bounds::check(self, w).map_err(|what| (bounds::NAME, what)))
            .and_then(|()| plans::check(self, w).map_err(|what| (plans::NAME, what)));
        let met = quotas::check(self, w).map_err(|what| (quotas::NAME, what));
        match found.and(met) {
            Ok(met) => met.into_iter().for_each(|meeting| self.coverage.hit_meeting(meeting)),
            Err((name, what)) => self.violated(name, format!("w{w}: {what}")),
        }
    }
}

fn make_role(role: Role) -> Box<dyn worker::Role> {
    match role {
        Role::Prefill => Box::new(Prefill),
        Role::Decode => Box::new(Decode),
    }
}

fn config(scenario: &Scenario, id: WorkerId, life: Life) -> WorkerConfig {
    WorkerConfig {
        id,
        incarnation: Incarnation(life),
        name: format!("w{}", id.0),
        layout: scenario.layout.clone(),
        blocks: scenario.blocks.clone(),
        weights: engine::sim::DIGEST,
        reserve_blocks: vec![scenario.reserve_blocks; scenario.layout.groups.len()],
        eviction: scenario.eviction,
        watermarks: scenario.caps.watermarks,
        pinned_percent: scenario.caps.pinned_percent,
        quotas: scenario.tenants.quotas,
        park_after: scenario.caps.park_after,
        scheduler: scenario.scheduler,
        handoff_wait: scenario.handoff_wait,
        answer_wait: scenario.answer_wait,
        release_retry: scenario.release_retry,
        offer_max: scenario.offer_max,
        silence_max: scenario.silence_max,
        outbox_bytes: scenario.network.outbox_bytes,
        steps_in_flight: scenario.steps_in_flight,
    }
}

/// What an operator's answer says to be reached.
fn answered(answer: &WorkerAnswer) -> Option<Reached> {
    let Some(worker_answer::Body::Prefix(prefix)) = &answer.body else { return None };
    match prefix.outcome() {
        PrefixOutcome::Done if prefix.pinned => Some(Reached::Pinned),
        PrefixOutcome::Refused if prefix.why.contains("kv.pinned_percent") => Some(Reached::PinRefused),
        _ => None,
    }
}

/// A message to a worker on a line.
fn brief(message: &ToWorker) -> String {
    match message {
        ToWorker::Submit(submit) => {
            let committed: Vec<_> = submit.choices.iter().map(|(choice, known)| (choice.0, known.len())).collect();
            let Submit { request, epoch, assignment, holder, .. } = submit;
            format!("submit {request} {epoch} {assignment:?}, committed {committed:?}, holder {holder:?}")
        }
        ToWorker::Peer(peer) => format!("{} in life {}", peer.id, peer.incarnation),
        other => format!("{other:?}"),
    }
}
