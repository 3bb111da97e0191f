//! Every state that a worker was seen in, and what came of what happened to it there.
//!
//! A machine does the same again where it is in the same state and the same happens to it. So each does everything
//! once, however many states of the world it is met in, and the world is made of numbers of states. A machine that
//! is needed again is made anew, by what happened to it.

use crate::action::Seen;
use crate::network::Envelope;
use crate::process::{Event, Outcome, Process, View};
use crate::scope::Scope;
use domain::handoff::PeerMessage;
use domain::{Incarnation, WorkerId};
use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

/// A state of a worker, by its number.
pub(crate) type StateId = u32;

/// What an event leads to.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) to: StateId,
    pub(crate) sent: Vec<Envelope>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) passed: [Duration; 2],
    pub(crate) broken: Option<String>,
}

struct State {
    /// The one before, and what happened there; `None`: a life began.
    way: Option<(StateId, Event)>,
    view: Rc<View>,
    /// The process itself, until something happens to it.
    process: Option<Process>,
}

/// All states of all workers.
pub(crate) struct Workers {
    scope: Scope,
    states: Vec<State>,
    numbers: HashMap<u64, StateId>,
    edges: HashMap<(StateId, Event), Rc<Edge>>,
    messages: Vec<(Rc<PeerMessage>, Vec<u8>)>,
    message_numbers: HashMap<Vec<u8>, u32>,
}

impl Workers {
    pub(crate) fn new(scope: Scope) -> Self {
        Self {
            scope,
            states: Vec::new(),
            numbers: HashMap::new(),
            edges: HashMap::new(),
            messages: Vec::new(),
            message_numbers: HashMap::new(),
        }
    }

    /// States that were seen.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Those of them in which two steps are in flight.
    pub(crate) fn with_two_steps(&self) -> usize {
        self.states.iter().filter(|state| state.view.has_behind).count()
    }

    /// A life of a worker begins.
    pub(crate) fn begin(&mut self, worker: WorkerId, life: Incarnation) -> StateId {
        let process = Process::new(self.scope, worker, life);
        self.enter(process, None)
    }

    /// Whether nothing has happened there since a life began.
    pub(crate) fn is_first(&self, state: StateId) -> bool {
        self.states[state as usize].way.is_none()
    }

    pub(crate) fn view(&self, state: StateId) -> &View {
        &self.states[state as usize].view
    }

    /// What comes of an event.
    pub(crate) fn after(&mut self, state: StateId, event: Event) -> Rc<Edge> {
        if let Some(edge) = self.edges.get(&(state, event)) {
            return edge.clone();
        }
        let mut process = match self.states[state as usize].process.take() {
            Some(process) => process,
            None => self.again(state),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.apply(&mut process, event)));
        let edge = match outcome {
            Ok(outcome) => Edge {
                to: self.enter(process, Some((state, event))),
                sent: outcome.sent.into_iter().map(|(to, message)| self.envelope(to, message)).collect(),
                seen: outcome.seen,
                passed: outcome.passed,
                broken: outcome.broken,
            },
            Err(panic) => Edge {
                to: state,
                sent: Vec::new(),
                seen: Vec::new(),
                passed: [Duration::ZERO; 2],
                broken: Some(format!("a panic: {}", message(&*panic))),
            },
        };
        let edge = Rc::new(edge);
        self.edges.insert((state, event), edge.clone());
        edge
    }

    fn apply(&self, process: &mut Process, event: Event) -> Outcome {
        let message = match event {
            Event::Message(number) => {
                let (message, bytes) = &self.messages[number as usize];
                Some((&**message, &bytes[..]))
            }
            _ => None,
        };
        process.apply(event, message)
    }

    /// The process in that state, from the beginning of its life on.
    fn again(&self, state: StateId) -> Process {
        let (mut events, mut first) = (Vec::new(), state);
        while let Some((before, event)) = self.states[first as usize].way {
            events.push(event);
            first = before;
        }
        let View { worker, life, .. } = *self.view(first);
        let mut process = Process::new(self.scope, worker, life);
        for event in events.into_iter().rev() {
            self.apply(&mut process, event);
        }
        process
    }

    fn enter(&mut self, process: Process, way: Option<(StateId, Event)>) -> StateId {
        let digest = process.digest();
        let next = self.states.len() as StateId;
        let number = *self.numbers.entry(digest).or_insert(next);
        if number == next {
            let view = Rc::new(process.view());
            self.states.push(State { way, view, process: Some(process) });
        }
        number
    }

    fn envelope(&mut self, to: WorkerId, message: PeerMessage) -> Envelope {
        let bytes = proto::handoff::encode(&message);
        let next = self.messages.len() as u32;
        let number = *self.message_numbers.entry(bytes.clone()).or_insert(next);
        if number == next {
            self.messages.push((Rc::new(message), bytes));
        }
        Envelope { to, number, message: self.messages[number as usize].0.clone() }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}
