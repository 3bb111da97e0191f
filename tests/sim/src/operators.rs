//! Operators, who drain workers and change their roles: over the session of a router, or at the worker's own port.

use crate::event::{Event, RouterIndex, WorkerIndex};
use crate::fault::FaultKind;
use crate::invariants::operator;
use crate::process::Inmail;
use crate::reach::Reached;
use crate::session::{Direction, Frame};
use crate::world::World;
use domain::session::{Assignment, Role, ToWorker};
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::{self, Message, WorkerAnswer, WorkerAsk, WorkerState};
use std::time::Duration;

/// Of so many asks out of 1,000 a router is the way.
const BY_ROUTER: u32 = 700;
/// How long an operator waits who would leave some router without a decode worker.
pub(crate) const LOOKS_AGAIN: Duration = Duration::from_millis(20);
/// When operators take back what they asked, after all faults are over: what was on its way has arrived. Decode workers
/// come first, so that there is one at any time.
const UNDOES: Duration = Duration::from_millis(200);

/// What a worker is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Duty {
    pub(crate) role: Role,
    pub(crate) drained: bool,
}

impl Duty {
    /// What a worker of this role starts with.
    pub(crate) fn of(role: Role) -> Self {
        Self { role, drained: false }
    }

    /// What a worker answered; none: it refused.
    pub(crate) fn answered(answer: &WorkerAnswer) -> Option<Self> {
        let Some(Answer::State(state)) = &answer.body else { return None };
        let role = if state.role() == admin::Role::Prefill { Role::Prefill } else { Role::Decode };
        Some(Self { role, drained: state.state() != WorkerState::Serving })
    }

    /// Whether it takes an attempt.
    pub(crate) fn takes(self, assignment: Assignment) -> bool {
        !self.drained && (self.role == Role::Prefill) == matches!(assignment, Assignment::Prefill { .. })
    }

    fn decodes(self) -> bool {
        self == Self::of(Role::Decode)
    }

    /// The same after an operator's ask, or after that is taken back.
    fn with(self, kind: FaultKind, begins: bool, starts_as: Role) -> Self {
        match kind {
            FaultKind::OperatorDrain => Self { drained: begins, ..self },
            _ => Self { role: if begins { other(starts_as) } else { starts_as }, ..self },
        }
    }
}

fn other(role: Role) -> Role {
    match role {
        Role::Prefill => Role::Decode,
        Role::Decode => Role::Prefill,
    }
}

impl World {
    /// Whether an operator may ask this of a worker. Where nothing else goes wrong, every router has a decode worker
    /// besides: operators look before they ask.
    pub(crate) fn may_operate(&self, w: WorkerIndex, kind: FaultKind, begins: bool) -> bool {
        let worker = &self.workers[w];
        let would = worker.wanted.with(kind, begins, worker.role);
        would.decodes() || !worker.wanted.decodes() || !self.scenario.is_harmless() || self.is_spared(w)
    }

    /// Whether another worker decodes, and all routers place by that.
    fn is_spared(&self, w: WorkerIndex) -> bool {
        let others = self.workers.iter().enumerate().filter(|&(other, _)| other != w).map(|(_, worker)| worker);
        let mut decoding = others.filter(|worker| {
            let decodes_now = worker.alive.as_ref().is_some_and(|alive| alive.duty().decodes());
            worker.wanted.decodes() && decodes_now
        });
        decoding.any(|worker| {
            let mut routers = self.routers.iter().filter_map(|router| router.alive.as_ref());
            routers.all(|router| {
                let mut views = router.placement.workers().into_iter();
                views.any(|view| view.id == worker.id && view.role == Role::Decode && !view.draining)
            })
        })
    }

    /// An operator asks something of a worker, or takes it back.
    pub(crate) fn operate_on(&mut self, w: WorkerIndex, kind: FaultKind, begins: bool) {
        let worker = &mut self.workers[w];
        (worker.wanted, worker.operated) = (worker.wanted.with(kind, begins, worker.role), true);
        let wanted = worker.wanted;
        let ask = if kind == FaultKind::OperatorDrain { drain(wanted) } else { role(wanted) };
        self.trace.note(self.now, || format!("an operator asks w{w}: {:?}", ask.body));
        let (by_router, router) = (self.random.chance(BY_ROUTER), self.random.index(self.routers.len()));
        match self.session_between(router, w).filter(|_| by_router) {
            Some(key) => {
                let ask = ToWorker::OperatorAsk { number: 1, ask: ask.encode_to_vec() };
                let bytes = proto::session::encode_to_worker(&ask);
                self.send_frame(key, Direction::ToWorker, Frame::Bytes(bytes));
            }
            None => self.mail_now(w, Inmail::Operator(ask)),
        }
    }

    /// All faults are over: workers will be what they were.
    pub(crate) fn operators_undo_later(&mut self) {
        self.agenda.enter(self.now + UNDOES, Event::Undo { role: Role::Decode });
        self.agenda.enter(self.now + UNDOES * 2, Event::Undo { role: Role::Prefill });
    }

    /// Workers that start with this role are what they were.
    pub(crate) fn operators_undo(&mut self, starts_as: Role) {
        for w in 0..self.workers.len() {
            let worker = &mut self.workers[w];
            let first = Duty::of(worker.role);
            if worker.role == starts_as && worker.alive.is_some() && worker.operated {
                worker.wanted = first;
                self.trace.note(self.now, || format!("an operator has w{w} be {first:?}"));
                [role(first), drain(first)].into_iter().for_each(|ask| self.mail_now(w, Inmail::Operator(ask)));
            }
        }
    }

    /// A worker answers an operator.
    pub(crate) fn operator_answered(&mut self, w: WorkerIndex, answer: &WorkerAnswer) {
        let Some(duty) = Duty::answered(answer) else { return };
        self.trace.note(self.now, || format!("w{w} answers an operator: {duty:?}"));
        self.workers[w].alive.iter_mut().for_each(|alive| alive.duties.push(duty));
    }

    /// A worker's answer to an operator comes to the router that asked.
    pub(crate) fn router_has_answer(&mut self, r: RouterIndex, w: WorkerIndex, answer: &[u8]) {
        let answer = WorkerAnswer::decode(answer).expect("a worker speaks the protocol");
        self.coverage.reach(Reached::OperatorAnswered);
        if let Err(what) = operator::check(self, r, w, &answer) {
            self.violated(operator::NAME, what);
        }
    }
}

fn drain(wanted: Duty) -> WorkerAsk {
    WorkerAsk { body: Some(Ask::Drain(wanted.drained)) }
}

fn role(wanted: Duty) -> WorkerAsk {
    let role = match wanted.role {
        Role::Prefill => admin::Role::Prefill,
        Role::Decode => admin::Role::Decode,
    };
    WorkerAsk { body: Some(Ask::Role(role.into())) }
}
