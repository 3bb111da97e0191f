//! What faults do when they strike, and how they end.

use crate::event::{Event, RouterIndex, WorkerIndex};
use crate::fault::{Fault, FaultKind, OF_DIRECTORY, OF_OPERATORS};
use crate::operators::LOOKS_AGAIN;
use crate::process::Inmail;
use crate::reach::Reached;
use crate::session::SessionKey;
use crate::world::{Chaos, Reach, World};
use domain::session::Role;
use domain::{RequestId, Time};

/// How long after a process goes on its loop hears what came meanwhile, in microseconds.
const SOCKETS: (u64, u64) = (10, 2000);
/// What slows reads down.
const SLOW: u32 = 40;

impl World {
    /// The time of a fault has come: it strikes, or waits for its step.
    pub(crate) fn strike_at_its_time(&mut self, fault: usize) {
        if self.healed.is_some() {
            return;
        }
        if self.scenario.faults[fault].step.is_some() {
            return self.armed.push(fault);
        }
        let alive: Vec<WorkerIndex> = (0..self.workers.len()).filter(|&w| self.workers[w].alive.is_some()).collect();
        if !alive.is_empty() {
            let w = self.random.pick(&alive);
            self.strike(fault, w, None);
        }
    }

    /// Faults that wait for a step in which a worker is now strike it.
    pub(crate) fn strike_in_step(&mut self, w: WorkerIndex) {
        if self.armed.is_empty() {
            return;
        }
        let steps = self.steps_of(w);
        let struck = |&fault: &usize| {
            let awaited = self.scenario.faults[fault].step;
            steps.iter().find(|(_, step)| Some(*step) == awaited).map(|&(request, _)| (fault, request))
        };
        if let Some((fault, request)) = self.armed.iter().find_map(struck) {
            self.armed.retain(|&armed| armed != fault);
            self.strike(fault, w, Some(request));
        }
    }

    fn strike(&mut self, number: usize, w: WorkerIndex, request: Option<RequestId>) {
        let Fault { kind, lasts, step, beside, .. } = self.scenario.faults[number].clone();
        let of_operators = OF_OPERATORS.contains(&kind);
        if of_operators && !self.may_operate(w, kind, true) {
            return;
        }
        self.trace.note(self.now, || format!("FAULT {number} {kind:?} at w{w} {step:?}, for {lasts:?}"));
        let over = self.now + lasts;
        if let Some(beside) = beside.filter(|_| over <= Time::ZERO + self.scenario.hurts) {
            self.coverage.reach(Reached::Pause(beside));
        }
        let router = request.and_then(|request| self.router_of(request)).map(|(router, _)| router);
        let router = router.unwrap_or_else(|| self.random.index(self.routers.len()));
        let process = self.worker_process(w);
        let told = self.random.chance(750);
        let everything = |_: &Self, _: RequestId| true;
        if kind != FaultKind::HangUp
            && !matches!(kind, FaultKind::RouterCrash | FaultKind::RouterStuck | FaultKind::FrameTwice)
            && !OF_DIRECTORY.contains(&kind)
        {
            self.cover(kind, w, everything);
        }
        let mut reach = Vec::new();
        match kind {
            FaultKind::WorkerCrash => {
                self.kill_worker(w, told);
                self.agenda.enter(over, Event::Return { process });
            }
            FaultKind::WorkerDies => {
                let decodes =
                    |other: &WorkerIndex| self.workers[*other].role == Role::Decode && !self.workers[*other].gone;
                self.workers[w].gone = (0..self.workers.len()).filter(|&other| other != w).any(|other| decodes(&other));
                self.kill_worker(w, told);
            }
            FaultKind::WorkerStuck => {
                let whole = self.random.chance(500);
                if let Some(alive) = self.workers[w].alive.as_mut().filter(|alive| !alive.stuck) {
                    alive.stuck = true;
                    if whole {
                        alive.sockets.get_or_insert_default();
                        self.coverage.reach(Reached::WholeProcessPaused);
                    }
                }
                self.agenda.enter(over, Event::Resume { process });
            }
            FaultKind::WorkerDrain => {
                self.workers[w].alive.iter_mut().for_each(|alive| alive.drains = true);
                self.mail_now(w, Inmail::Drain);
                let life = self.workers[w].life;
                self.agenda.enter(over, Event::DrainDeadline { worker: w, life });
            }
            FaultKind::StepFails => {
                let layer = self.random.index(self.scenario.layout.layers() + 1) as u16;
                self.workers[w].alive.iter_mut().for_each(|alive| alive.fails_in = Some(layer));
            }
            FaultKind::RouterCrash | FaultKind::RouterStuck => self.strike_router(kind, router, told, over),
            FaultKind::SessionCut | FaultKind::SessionMute | FaultKind::FrameTwice => {
                if let Some(key) = self.session_between(router, w) {
                    self.strike_session(kind, key, &mut reach);
                }
            }
            FaultKind::RouterPartition => self.block(self.router_process(router), process, &mut reach),
            FaultKind::PeerPartitionOneWay | FaultKind::PeerPartition => {
                let others: Vec<WorkerIndex> = (0..self.workers.len()).filter(|&other| other != w).collect();
                let both = kind == FaultKind::PeerPartition;
                let turned = self.random.chance(500);
                for other in others.into_iter().map(|other| self.worker_process(other)) {
                    let (from, to) = if turned { (other, process) } else { (process, other) };
                    reach.push(Reach::Blocked { from, to });
                    reach.extend(both.then_some(Reach::Blocked { from: to, to: from }));
                }
            }
            FaultKind::SlowLane => reach.push(Reach::Slow(w)),
            FaultKind::ReadFails => {
                let running: Vec<_> =
                    self.reads.iter().filter(|(_, read)| read.reader.0 == w).map(|(&key, _)| key).collect();
                if running.is_empty() {
                    self.workers[w].alive.iter_mut().for_each(|alive| alive.reads_fail = 1);
                }
                running.into_iter().for_each(|key| self.fail_read(key));
            }
            FaultKind::HangUp => {
                let request = request.or_else(|| self.steps_of(w).first().map(|&(request, _)| request));
                request.into_iter().for_each(|request| self.hang_up(request));
            }
            FaultKind::MessageLoss => reach.push(Reach::Chaos(Chaos { loss: self.often(), ..Chaos::default() })),
            FaultKind::MessageTwice => reach.push(Reach::Chaos(Chaos { twice: self.often(), ..Chaos::default() })),
            FaultKind::MessageDelay => reach.push(Reach::Chaos(Chaos { delay: self.often(), ..Chaos::default() })),
            FaultKind::OperatorDrain | FaultKind::OperatorRole => reach.push(Reach::Operated(w, kind)),
            FaultKind::DirectoryLags
            | FaultKind::DirectoryRepeats
            | FaultKind::DirectoryForgets
            | FaultKind::DirectoryLies => reach.extend(self.mistake(kind, number, w).map(Reach::Directory)),
            FaultKind::Deadline => {}
        }
        if !reach.is_empty() {
            reach.iter().for_each(|&reach| self.apply(reach, true));
            self.struck.insert(number, reach);
            self.agenda.enter(over, Event::Recover { fault: number });
        }
    }

    fn often(&mut self) -> u32 {
        self.random.range(20, 500) as u32
    }

    fn strike_router(&mut self, kind: FaultKind, router: RouterIndex, told: bool, over: Time) {
        let hit = (router, self.routers[router].life);
        for worker in 0..self.workers.len() {
            self.cover(kind, worker, |world, request| world.router_of(request) == Some(hit));
        }
        let process = self.router_process(router);
        if kind == FaultKind::RouterCrash {
            self.kill_router(router, told);
            self.agenda.enter(over, Event::Return { process });
        } else {
            self.routers[router].alive.iter_mut().for_each(|alive| alive.stuck = true);
            self.agenda.enter(over, Event::Resume { process });
        }
    }

    fn strike_session(&mut self, kind: FaultKind, key: SessionKey, reach: &mut Vec<Reach>) {
        let to_worker = self.random.chance(500);
        let session = self.sessions.get_mut(&key).expect("its key was just found");
        match kind {
            FaultKind::SessionCut => {
                self.cut(key);
            }
            FaultKind::SessionMute if to_worker => session.to_worker.mute = true,
            FaultKind::SessionMute => session.to_router.mute = true,
            _ => reach.push(Reach::Repeats(key)),
        }
    }

    /// One way or both are blocked.
    fn block(&mut self, one: usize, other: usize, reach: &mut Vec<Reach>) {
        let ways = self.random.range(1, 3);
        reach.extend((ways & 1 > 0).then_some(Reach::Blocked { from: one, to: other }));
        reach.extend((ways & 2 > 0).then_some(Reach::Blocked { from: other, to: one }));
    }

    pub(crate) fn session_between(&self, router: RouterIndex, w: WorkerIndex) -> Option<SessionKey> {
        self.routers[router].alive.as_ref().and_then(|alive| alive.links.get(&w).copied())
    }

    /// A fault that lasted is over.
    pub(crate) fn recover(&mut self, fault: usize) {
        let waits = |reach: &Reach| matches!(*reach, Reach::Operated(w, kind) if !self.may_operate(w, kind, false));
        if self.struck.get(&fault).is_some_and(|reach| reach.iter().any(waits)) {
            return self.agenda.enter(self.now + LOOKS_AGAIN, Event::Recover { fault });
        }
        if let Some(reach) = self.struck.remove(&fault) {
            self.trace.note(self.now, || format!("fault {fault} is over"));
            reach.into_iter().for_each(|reach| self.apply(reach, false));
        }
    }

    fn apply(&mut self, reach: Reach, begins: bool) {
        match reach {
            Reach::Blocked { from, to } if begins => self.blocked[from][to] += 1,
            Reach::Blocked { from, to } => self.blocked[from][to] -= 1,
            Reach::Operated(w, kind) => self.operate_on(w, kind, begins),
            Reach::Directory(mistake) => self.mistaken(mistake, begins),
            Reach::Slow(w) => self.workers[w].slow = if begins { SLOW } else { 1 },
            Reach::Chaos(Chaos { loss, twice, delay }) => {
                let chaos = &mut self.chaos;
                *chaos = if begins {
                    Chaos { loss: chaos.loss + loss, twice: chaos.twice + twice, delay: chaos.delay + delay }
                } else {
                    Chaos { loss: chaos.loss - loss, twice: chaos.twice - twice, delay: chaos.delay - delay }
                };
            }
            Reach::Repeats(key) => {
                self.sessions.get_mut(&key).into_iter().for_each(|session| session.to_router.repeats = begins);
            }
        }
    }

    /// A process that stood still goes on.
    pub(crate) fn resume(&mut self, process: usize) {
        if let Some(w) = process.checked_sub(self.routers.len()) {
            let (now, life) = (self.now, self.workers[w].life);
            let Some(alive) = self.workers[w].alive.as_mut().filter(|alive| alive.stuck) else { return };
            alive.stuck = false;
            let late = alive.sockets.is_some();
            self.trace.note(now, || format!("w{w} goes on"));
            self.wake_at(w, now);
            if late {
                // It has a turn before it hears of anything.
                let at = now + self.random.micros(SOCKETS.0, SOCKETS.1);
                self.agenda.enter(at, Event::Sockets { worker: w, life });
            }
            return;
        }
        let Some(alive) = self.routers[process].alive.as_mut().filter(|alive| alive.stuck) else { return };
        alive.stuck = false;
        self.trace.note(self.now, || format!("router {process} goes on"));
        for mail in std::mem::take(&mut alive.inbox) {
            self.open_router_mail(process, mail);
        }
        self.router_event(process, placement::Event::Tick);
    }

    /// A process that is down comes back, unless it is gone for good.
    pub(crate) fn come_back(&mut self, process: usize) {
        match process.checked_sub(self.routers.len()) {
            Some(w) if self.workers[w].alive.is_none() && !self.workers[w].gone => self.start_worker(w),
            None if self.routers[process].alive.is_none() => self.start_router(process),
            _ => {}
        }
    }
}
