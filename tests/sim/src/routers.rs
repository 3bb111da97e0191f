//! Router processes: their lives, their sessions with workers, and what their placements command.

use crate::client::Outcome;
use crate::event::{Event, Life, RouterIndex, WorkerIndex};
use crate::fault::FaultKind;
use crate::invariants::{ends, epochs, needless, patience, refusals, text, tokens, turn};
use crate::listing::Follower;
use crate::process::{Inmail, RouterLife, RouterMail};
use crate::reach::Reached;
use crate::session::{Direction, Frame, Session, SessionKey, Way};
use crate::world::World;
use domain::session::{Assignment, FromWorker, PeerAddress, PeerInfo, Submit, ToWorker};
use domain::{End, Ender, Incarnation, Time};
use placement::{Command, EARLY_ROWS_MAX, Placement, PlacementConfig, Rates};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use worker::SessionId;

/// The first wait before a router dials again, and the longest.
const BACK_OFF: Duration = Duration::from_millis(10);
const BACK_OFF_MAX: Duration = Duration::from_millis(300);
/// A session that has not begun by then is given up.
const DIAL_MAX: Duration = Duration::from_millis(200);
/// So many times the messages that leave no room for an attempt leave none for anything.
const SPARE: usize = 2;

impl World {
    /// A router's next life begins.
    pub(crate) fn start_router(&mut self, r: RouterIndex) {
        let scenario = &self.scenario;
        let config = PlacementConfig {
            block_tokens: scenario.layout.block_tokens,
            token_bytes: scenario.layout.token_bytes() as u64,
            attempts_max: scenario.attempts_max,
            lease: scenario.lease,
            requests_max: scenario.requests_max,
            index_blocks_max: scenario.index_blocks_max,
            handoff: scenario.policy,
            fetch: scenario.fetch,
            heartbeat: scenario.heartbeat,
            silence_max: scenario.silence_max,
            defaults: Rates::default(),
        };
        let router = &mut self.routers[r];
        router.life += 1;
        let life = router.life;
        router.alive = Some(RouterLife {
            placement: Placement::new(config),
            links: BTreeMap::new(),
            contexts: BTreeMap::new(),
            dialling: BTreeMap::new(),
            dials: BTreeMap::new(),
            back_off: BTreeMap::new(),
            follower: Follower::default(),
            inbox: VecDeque::new(),
            stuck: false,
            ticks: None,
        });
        self.trace.note(self.now, || format!("router {r} begins its life {life}"));
        self.find_workers(r);
    }

    /// A router dies, and with it what its clients asked.
    pub(crate) fn kill_router(&mut self, r: RouterIndex, told: bool) {
        if self.routers[r].alive.take().is_none() {
            return;
        }
        let life = self.routers[r].life;
        self.trace.note(self.now, || format!("router {r} dies{}", if told { "" } else { ", and nobody is told" }));
        for client in self.clients.values_mut().filter(|client| client.router == (r, life)) {
            client.outcome.get_or_insert(Outcome::RouterGone);
        }
        let open = self.sessions.iter().filter(|(_, session)| session.router == (r, life)).map(|(&key, _)| key);
        for key in open.collect::<Vec<_>>() {
            self.end_of_router(key, told);
        }
    }

    // -- sessions

    /// A router tries to begin a session with a worker.
    pub(crate) fn dial(&mut self, r: RouterIndex, life: Life, w: WorkerIndex) {
        if self.routers[r].life != life {
            return;
        }
        let now = self.now;
        let Some(alive) = &mut self.routers[r].alive else { return };
        if alive.links.contains_key(&w) || alive.dials.get(&w) != Some(&now) {
            return;
        }
        if let Some(key) = alive.dialling.remove(&w) {
            self.end_of_router(key, true);
        }
        let Some(there) = self.found_at(r, w).filter(|&there| self.reaches(r, there)) else {
            return self.dial_later(r, w);
        };
        if self.routers[r].alive.as_ref().is_some_and(|alive| alive.stuck) {
            return self.dial_later(r, w);
        }
        self.session_keys += 1;
        let key = self.session_keys;
        let session = Session {
            router: (r, life),
            worker: (there, self.workers[there].life),
            sought: w,
            id: SessionId(0),
            ended: Arc::new(AtomicBool::new(false)),
            to_worker: Way::default(),
            to_router: Way::default(),
            router_open: true,
            worker_open: true,
        };
        self.sessions.insert(key, session);
        let Some(alive) = &mut self.routers[r].alive else { return };
        alive.dialling.insert(w, key);
        self.dial_at(r, w, self.now + DIAL_MAX);
        self.send_frame(key, Direction::ToWorker, Frame::Hello);
    }

    /// A router dials a worker after a while, if that is listed still.
    fn dial_later(&mut self, r: RouterIndex, w: WorkerIndex) {
        if !self.is_listed(r, w) {
            return self.forget(r, w);
        }
        let Some(alive) = &mut self.routers[r].alive else { return };
        let wait = alive.back_off.entry(w).or_insert(BACK_OFF);
        let at = self.now + *wait;
        *wait = (*wait * 2).min(BACK_OFF_MAX);
        self.dial_at(r, w, at);
    }

    /// A router dials a worker then, and not at another time.
    pub(crate) fn dial_at(&mut self, r: RouterIndex, w: WorkerIndex, at: Time) {
        let life = self.routers[r].life;
        let Some(alive) = &mut self.routers[r].alive else { return };
        alive.dials.insert(w, at);
        self.agenda.enter(at, Event::Dial { router: r, life, worker: w });
    }

    fn reaches(&self, r: RouterIndex, w: WorkerIndex) -> bool {
        let (from, to) = (self.router_process(r), self.worker_process(w));
        self.workers[w].alive.is_some() && !self.is_blocked(from, to) && !self.is_blocked(to, from)
    }

    /// The worker's end of a session is gone.
    pub(crate) fn end_of_worker(&mut self, key: SessionKey, told: bool) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.worker_open = false;
        session.to_worker.mute = true;
        if told {
            self.send_frame(key, Direction::ToRouter, Frame::End);
        }
    }

    /// The router's end of a session is gone.
    pub(crate) fn end_of_router(&mut self, key: SessionKey, told: bool) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.router_open = false;
        session.to_router.mute = true;
        if told {
            self.send_frame(key, Direction::ToWorker, Frame::End);
        }
    }

    /// A session is cut. What is on its way arrives or not; then each end sees that the other is gone.
    pub(crate) fn cut(&mut self, key: SessionKey) {
        self.send_frame(key, Direction::ToRouter, Frame::End);
        self.send_frame(key, Direction::ToWorker, Frame::End);
    }

    /// A frame leaves. It arrives after all before it.
    pub(crate) fn send_frame(&mut self, key: SessionKey, direction: Direction, frame: Frame) {
        let latency = self.latency();
        let Some(session) = self.sessions.get_mut(&key) else { return };
        self.frames += 1;
        let way = session.way(direction);
        way.last = way.last.max(self.now + latency);
        way.frames.push_back(frame);
        self.agenda.enter(way.last, Event::Frame { session: key, direction });
    }

    /// The next frame of a session arrives, unless its way is blocked: then it waits.
    pub(crate) fn frame(&mut self, key: SessionKey, direction: Direction) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let (router, worker) = (session.router, session.worker);
        let (r, w) = (self.router_process(router.0), self.worker_process(worker.0));
        let (from, to) = if direction == Direction::ToWorker { (r, w) } else { (w, r) };
        if self.is_blocked(from, to) {
            let at = self.now + Duration::from_millis(5);
            return self.agenda.enter(at, Event::Frame { session: key, direction });
        }
        let session = self.sessions.get_mut(&key).expect("it was there above");
        let way = session.way(direction);
        let Some(frame) = way.frames.pop_front() else { return };
        let (mute, repeats) = (way.mute, way.repeats);
        let taken = mute || self.routers[router.0].life != router.1 || self.routers[router.0].alive.is_none();
        if let Frame::Bytes(_) = frame
            && direction == Direction::ToRouter
            && taken
        {
            way.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        if mute {
            return;
        }
        match (direction, frame) {
            (Direction::ToWorker, Frame::Hello) => {
                if self.workers[worker.0].life == worker.1 && self.workers[worker.0].alive.is_some() {
                    self.mail(worker.0, worker.1, Inmail::Opened(key));
                    self.send_frame(key, Direction::ToRouter, Frame::Hello);
                } else {
                    self.end_of_worker(key, true);
                }
            }
            (Direction::ToWorker, Frame::Bytes(bytes)) => self.mail(worker.0, worker.1, Inmail::Session(key, bytes)),
            (Direction::ToWorker, Frame::End) => {
                let session = self.sessions.get_mut(&key).expect("it was there above");
                session.ended.store(true, Ordering::Release);
                self.wake_at(worker.0, self.now);
            }
            (Direction::ToRouter, frame) => {
                if self.routers[router.0].life != router.1 {
                    return;
                }
                if repeats
                    && let Frame::Bytes(bytes) = &frame
                    && matches!(proto::session::decode_from_worker(bytes), Ok(FromWorker::Tokens(_)))
                {
                    self.cover(FaultKind::FrameTwice, worker.0, |_, _| true);
                    let again = RouterMail::Bytes { session: key, bytes: bytes.clone(), counts: false };
                    self.router_mail(router.0, again);
                }
                let mail = match frame {
                    Frame::Hello => RouterMail::Hello(key),
                    Frame::Bytes(bytes) => RouterMail::Bytes { session: key, bytes, counts: true },
                    Frame::End => RouterMail::Ended(key),
                };
                self.router_mail(router.0, mail);
            }
        }
    }

    // -- the router's loop

    /// Something for a router, at once or when it goes on.
    pub(crate) fn router_mail(&mut self, r: RouterIndex, mail: RouterMail) {
        let Some(alive) = &mut self.routers[r].alive else { return };
        if alive.stuck {
            return alive.inbox.push_back(mail);
        }
        self.open_router_mail(r, mail);
    }

    pub(crate) fn router_event(&mut self, r: RouterIndex, event: placement::Event) {
        self.router_mail(r, RouterMail::Event(event));
    }

    pub(crate) fn tick(&mut self, r: RouterIndex, life: Life) {
        if self.routers[r].life != life {
            return;
        }
        let now = self.now;
        if let Some(alive) = self.routers[r].alive.as_mut().filter(|alive| alive.ticks == Some(now)) {
            alive.ticks = None;
            if !alive.stuck {
                self.router_event(r, placement::Event::Tick);
            }
        }
    }

    pub(crate) fn open_router_mail(&mut self, r: RouterIndex, mail: RouterMail) {
        match mail {
            RouterMail::Hello(key) => self.hello(r, key),
            RouterMail::Bytes { session: key, bytes, counts } => {
                if let Some(session) = self.sessions.get(&key).filter(|_| counts) {
                    session.to_router.in_flight.fetch_sub(1, Ordering::Relaxed);
                }
                let Some(w) = self.linked(r, key) else { return };
                let message = proto::session::decode_from_worker(&bytes).expect("a worker speaks the protocol");
                self.note_early(r, &message);
                if let FromWorker::OperatorAnswer { answer, .. } = &message {
                    return self.router_has_answer(r, w, answer);
                }
                let id = self.workers[w].id;
                self.place(r, placement::Event::Worker { id, message });
            }
            RouterMail::Ended(key) => {
                if let Some(w) = self.linked(r, key) {
                    return self.worker_down(r, w);
                }
                let Some(session) = self.sessions.get(&key) else { return };
                let w = session.sought;
                let Some(alive) = &mut self.routers[r].alive else { return };
                if alive.dialling.get(&w) == Some(&key) {
                    alive.dialling.remove(&w);
                    self.end_of_router(key, false);
                    self.dial_later(r, w);
                }
            }
            RouterMail::Sight(sight) => self.follow(r, sight),
            RouterMail::Event(event) => self.place(r, event),
        }
    }

    /// Tokens come to a router: whether they have to wait for others.
    fn note_early(&mut self, r: RouterIndex, message: &FromWorker) {
        let FromWorker::Tokens(rows) = message else { return };
        let life = self.routers[r].life;
        for row in rows {
            let client = self.clients.get(&row.key.request);
            let client =
                client.filter(|it| it.router == (r, life) && it.outcome.is_none() && it.epoch == row.key.epoch);
            let Some(got) = client.and_then(|client| client.got.get(usize::from(row.key.choice.0))) else { continue };
            let ahead = (row.index as usize).saturating_sub(got.len());
            if ahead > 0 {
                self.coverage.reach(Reached::EarlyRow);
            }
            if ahead > EARLY_ROWS_MAX {
                self.coverage.reach(Reached::EarlyRowsMax);
            }
        }
    }

    /// The worker of a session that is open for a router.
    fn linked(&self, r: RouterIndex, key: SessionKey) -> Option<WorkerIndex> {
        let w = self.sessions.get(&key)?.worker.0;
        (self.routers[r].alive.as_ref()?.links.get(&w) == Some(&key)).then_some(w)
    }

    fn hello(&mut self, r: RouterIndex, key: SessionKey) {
        let Some(session) = self.sessions.get(&key) else { return };
        let ((w, life), sought) = (session.worker, session.sought);
        let Some(alive) = &mut self.routers[r].alive else { return };
        if alive.dialling.get(&sought) != Some(&key) {
            return;
        }
        alive.dialling.remove(&sought);
        if sought != w {
            self.trace.note(self.now, || format!("router {r} dialed w{sought} and refuses w{w}"));
            self.coverage.reach(Reached::AnotherFound);
            self.end_of_router(key, true);
            return self.dial_later(r, sought);
        }
        alive.back_off.remove(&w);
        alive.dials.remove(&w);
        alive.links.insert(w, key);
        let worker = &self.workers[w];
        let context = worker.alive.as_ref().map_or(0, |alive| alive.context);
        let context_tokens = u32::try_from(context).unwrap_or(u32::MAX);
        let peer = PeerInfo {
            id: worker.id,
            incarnation: Incarnation(life),
            name: format!("w{w}"),
            role: worker.alive.as_ref().map_or(worker.role, |alive| alive.duty().role),
            address: PeerAddress::default(),
        };
        self.trace.note(self.now, || format!("router {r} has session {key} with w{w} in life {life}"));
        self.routers[r].alive.iter_mut().for_each(|alive| alive.contexts.extend([(w, context_tokens)]));
        self.place(r, placement::Event::WorkerUp { peer, context_tokens });
    }

    /// A router takes a worker for lost.
    fn worker_down(&mut self, r: RouterIndex, w: WorkerIndex) {
        self.close_link(r, w);
        let id = self.workers[w].id;
        self.place(r, placement::Event::WorkerDown { id });
    }

    /// Messages of a session that its worker has not read.
    fn queued(&self, w: WorkerIndex, key: SessionKey) -> usize {
        let under_way = self.sessions.get(&key).map_or(0, |session| session.to_worker.frames.len());
        under_way + self.workers[w].alive.as_ref().map_or(0, |alive| alive.unread_of(key))
    }

    fn close_link(&mut self, r: RouterIndex, w: WorkerIndex) {
        let Some(key) = self.routers[r].alive.as_mut().and_then(|alive| alive.links.remove(&w)) else { return };
        self.trace.note(self.now, || format!("router {r} ends session {key} with w{w}"));
        self.end_of_router(key, true);
        self.dial_later(r, w);
    }

    /// Gives a placement an event and does what it commands.
    fn place(&mut self, r: RouterIndex, event: placement::Event) {
        let now = self.now;
        let Some(alive) = &mut self.routers[r].alive else { return };
        let mut commands = Vec::new();
        let refused = refusals::expect(&alive.placement, &event);
        alive.placement.handle(now, event, &mut commands);
        if let (Some(refused), Some(alive)) = (refused, &self.routers[r].alive)
            && let Err(what) = refusals::check(self, &alive.placement, &refused)
        {
            self.violated(refusals::NAME, what);
        }
        if self.routers[r].alive.as_ref().is_some_and(|alive| alive.placement.waiting() > 0) {
            self.coverage.reach(Reached::RouterWaits);
        }
        let mut unsent = Vec::new();
        for command in commands {
            self.command(r, command, &mut unsent);
        }
        unsent.into_iter().for_each(|event| self.place(r, event));
        let life = self.routers[r].life;
        let Some(alive) = &mut self.routers[r].alive else { return };
        let due = alive.placement.next_deadline().map(|at| at.max(now + Duration::from_micros(1)));
        if let Some(at) = due.filter(|&at| alive.ticks.is_none_or(|entered| at < entered)) {
            alive.ticks = Some(at);
            self.agenda.enter(at, Event::Tick { router: r, life });
        }
    }

    /// Does what a placement commands. `unsent`: attempts that a full link did not take.
    fn command(&mut self, r: RouterIndex, command: Command, unsent: &mut Vec<placement::Event>) {
        match command {
            Command::Send { worker, message } => {
                let w = self.worker_index(worker);
                if let ToWorker::Submit(submit) = &message {
                    let needless = needless::submitted(self, submit).map_err(|what| (needless::NAME, what));
                    let found = needless.and_then(|()| turn::check(self, w, submit).map_err(|what| (turn::NAME, what)));
                    if let Err((name, what)) = found {
                        self.violated(name, what);
                    }
                    let context = submit.prompt.len() + submit.params.max_tokens as usize;
                    if self.workers.iter().filter_map(|worker| worker.alive.as_ref()).any(|it| it.context < context) {
                        self.coverage.reach(Reached::TooLongForSome);
                    }
                }
                if let ToWorker::Submit(submit) = &message
                    && !matches!(submit.assignment, Assignment::TakeOver { .. })
                    && let Some(client) = self.clients.get_mut(&submit.request)
                {
                    client.epoch = submit.epoch;
                }
                if matches!(message, ToWorker::Submit(_)) && !self.is_listed(r, w) {
                    self.coverage.reach(Reached::UnlistedServes);
                }
                let key = self.routers[r].alive.as_ref().and_then(|alive| alive.links.get(&w).copied());
                let Some(key) = key else { return };
                let (queued, frames_max) = (self.queued(w, key), self.scenario.caps.link_frames);
                if let &ToWorker::Submit(Submit { request, epoch, .. }) = &message
                    && queued >= frames_max
                {
                    self.trace
                        .note(self.now, || format!("router {r} has no room for {request} {epoch} in session {key}"));
                    self.coverage.reach(Reached::AttemptUnsent);
                    unsent.push(placement::Event::Unsent { worker, request, epoch });
                } else if queued >= frames_max * SPARE {
                    self.trace.note(self.now, || format!("router {r} has no room in session {key} with w{w}"));
                    self.coverage.reach(Reached::LinkFull);
                    self.cut(key);
                } else {
                    let bytes = proto::session::encode_to_worker(&message);
                    self.send_frame(key, Direction::ToWorker, Frame::Bytes(bytes));
                }
            }
            Command::Close { worker, why } => {
                self.trace.note(self.now, || format!("router {r} closes the session with {worker}: {why:?}"));
                self.close_link(r, self.worker_index(worker));
            }
            Command::Token { request, choice, row } => {
                let Some(client) = self.clients.get_mut(&request) else { return };
                let found = tokens::check(client, choice, &row)
                    .map_err(|what| (tokens::NAME, what))
                    .and_then(|()| text::check(client, choice, &row).map_err(|what| (text::NAME, what)))
                    .and_then(|()| epochs::check(client, &row).map_err(|what| (epochs::NAME, what)));
                client.got[usize::from(choice.0)].push(row.token);
                let got = client.got[usize::from(choice.0)].len() as u32;
                let stops = client.ask.stops == Some((choice.0, got)) && client.outcome.is_none();
                client.stopped |= stops;
                if let Err((name, what)) = found {
                    self.violated(name, format!("{request}: {what}"));
                }
                if stops {
                    let life = self.routers[r].life;
                    self.agenda.enter(self.now, Event::StopString { router: r, life, request, choice });
                }
            }
            Command::ChoiceEnd { request, choice, end } => {
                self.trace.note(self.now, || format!("{request} {choice} ends: {:?}", end.finish));
                let Some(client) = self.clients.get_mut(&request) else { return };
                let found = ends::choice(client, choice, &end);
                client.choice_ends[usize::from(choice.0)] = Some(end);
                if let Err(what) = found {
                    self.violated(ends::NAME, format!("{request}: {what}"));
                }
            }
            Command::End { request, end, .. } => {
                if end.by == Ender::Limit && end.detail.contains("deadline") {
                    for worker in 0..self.workers.len() {
                        self.cover(FaultKind::Deadline, worker, |_, of| of == request);
                    }
                }
                self.request_ended(request, Outcome::Ended(end));
            }
            Command::Reject { request, why, detail } => {
                self.trace.note(self.now, || format!("{request} is refused: {detail}"));
                self.request_ended(request, Outcome::Ended(End::error(Ender::Us, format!("{why:?}: {detail}"))));
            }
        }
    }

    fn request_ended(&mut self, request: domain::RequestId, outcome: Outcome) {
        self.trace.note(self.now, || format!("{request} ends: {outcome:?}"));
        let must_succeed = self.must_succeed(request);
        let Some(client) = self.clients.get(&request) else { return };
        let needless = needless::ended(self, client, &outcome).map_err(|what| (needless::NAME, what));
        let found = needless.and_then(|()| patience::check(self, client).map_err(|what| (patience::NAME, what)));
        if let Err((name, what)) = found {
            self.violated(name, format!("{request}: {what}"));
        }
        let Some(client) = self.clients.get_mut(&request) else { return };
        let found = ends::request(client, &outcome, must_succeed);
        // One who hung up is told nothing.
        client.outcome.get_or_insert(outcome);
        if let Err(what) = found {
            self.violated(ends::NAME, format!("{request}: {what}"));
        }
    }
}
