//! The inbox of a worker: the one way into its thread.

use crate::config::{INBOX_AGENT_BYTES_MAX, INBOX_BYTES_MAX};
use crate::grammars::CompiledFor;
use crate::outbox::SessionSend;
use crate::sessions::SessionId;
use domain::KvLayout;
use engine::device::Device;
use proto::admin::{WorkerAnswer, WorkerAsk};
use proto::queue::{Room, Share};
use scheduler::SchedulerConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;
use tiers::{TierEvent, TierOwner};
use transport::{AgentEvent, Failure};

/// Something that happened outside the worker's thread.
pub enum Inbound {
    /// A router began a session.
    Opened {
        /// Its id, which no other session of this worker had.
        session: SessionId,
        /// Takes what is said to the router.
        send: SessionSend,
        /// Set once the router's end is gone.
        ended: Arc<AtomicBool>,
    },
    /// Bytes of a session.
    Session {
        /// The session that they came by.
        session: SessionId,
        /// A message.
        bytes: Vec<u8>,
    },
    /// From the transport agent.
    Agent(AgentEvent),
    /// From a tier.
    Tier(TierEvent),
    /// From an operator at this process.
    Operator {
        /// What is asked.
        ask: WorkerAsk,
        /// Takes the answer, without waiting.
        reply: Box<dyn FnOnce(WorkerAnswer) + Send>,
    },
    /// A grammar was compiled, or is none.
    Compiled(CompiledFor),
    /// Take other limits from the next step on.
    Limits(SchedulerConfig),
    /// The device ended a step.
    StepEnded,
    /// Take nothing new; what runs goes on.
    Drain,
    /// End now; what runs is cancelled.
    Shutdown,
}

/// The receiving end, to be handed to [`crate::Worker::start`].
pub struct Inbox {
    pub(crate) receiver: Events,
    pub(crate) input: WorkerInput,
}

/// The events that wait for the worker's thread, in order.
pub(crate) struct Events(Receiver<Waiting>);

/// An event that waits, with its share of the room for its kind.
struct Waiting {
    event: Inbound,
    _share: Option<Share>,
}

/// The sending end. Cheap to clone.
#[derive(Clone)]
pub struct WorkerInput {
    sender: Sender<Waiting>,
    /// For messages of routers, and for what operators ask.
    pub(crate) routers: Room,
    /// For what the agent tells.
    agent: Room,
    sessions: Arc<AtomicU64>,
    failure: Failure,
}

/// The router's end of its session with a worker. Dropping it ends the session: the worker gives up all that it
/// does for it within a tick of its loop, even if its inbox is full.
pub struct SessionInput {
    id: SessionId,
    worker: WorkerInput,
    ended: Arc<AtomicBool>,
}

/// An inbox that holds a bounded number of bytes: of routers' messages, and of what the agent tells. Of other
/// events there are as many as there are sessions, moves of tiers, steps under way, submits that wait for their grammar
/// and changes of limits.
pub fn inbox() -> Inbox {
    let (sender, receiver) = channel();
    let (routers, agent) = (Room::new(INBOX_BYTES_MAX), Room::new(INBOX_AGENT_BYTES_MAX));
    let input = WorkerInput { sender, routers, agent, sessions: Arc::default(), failure: Failure::new() };
    Inbox { receiver: Events(receiver), input }
}

impl Events {
    /// The next event, as soon as there is one. Errors: there was none in time.
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<Inbound, RecvTimeoutError> {
        self.0.recv_timeout(timeout).map(|waiting| waiting.event)
    }

    /// Returns the next event. Errors: there is none now.
    pub(crate) fn try_recv(&self) -> Result<Inbound, TryRecvError> {
        self.0.try_recv().map(|waiting| waiting.event)
    }
}

impl Inbox {
    /// A sending end.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
    }

    /// The worker as its tiers see it, with the pools of `device`, which have this layout.
    pub fn tier_owner(&self, device: &dyn Device, layout: &KvLayout) -> TierOwner {
        let pools = (0..layout.groups.len()).map(|group| device.pool(group)).collect();
        let input = self.input();
        let failure = input.failure.clone();
        TierOwner { pools, failure, events: Arc::new(move |event| input.tier_event(event)) }
    }
}

impl WorkerInput {
    /// Returns where the worker's threads report what they cannot handle; it ends then.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Begins a session with a router. `send` takes what is said to it, and is dropped when the worker ends the
    /// session. `None`: the worker has ended.
    pub fn open_session(&self, send: SessionSend) -> Option<SessionInput> {
        let id = SessionId(self.sessions.fetch_add(1, Ordering::Relaxed));
        let ended = Arc::<AtomicBool>::default();
        let opened = Inbound::Opened { session: id, send, ended: ended.clone() };
        self.put(opened, None).then(|| SessionInput { id, worker: self.clone(), ended })
    }

    /// Takes an event of the agent. `false`: there is no room. The agent offers it again, unless it is a message.
    pub fn agent(&self, event: AgentEvent) -> bool {
        let bytes = if let AgentEvent::Message { bytes, .. } = &event { bytes.len() } else { 0 };
        self.agent.try_take(bytes, 0).is_some_and(|share| self.put(Inbound::Agent(event), Some(share)))
    }

    /// Passes on what a tier reports.
    pub fn tier_event(&self, event: TierEvent) {
        self.put(Inbound::Tier(event), None);
    }

    /// Asks what a router may ask over its session; `reply` takes the answer in the worker's thread, and must not wait
    /// there. `false`: there is no room, or the worker has ended.
    pub fn ask(&self, ask: WorkerAsk, reply: impl FnOnce(WorkerAnswer) + Send + 'static) -> bool {
        let ask = Inbound::Operator { ask, reply: Box::new(reply) };
        self.routers.try_take(0, 0).is_some_and(|share| self.put(ask, Some(share)))
    }

    /// Gives the worker other limits, from its next step on. They fit together, as [`SchedulerConfig::check`] says.
    pub fn change_limits(&self, limits: SchedulerConfig) {
        self.put(Inbound::Limits(limits), None);
    }

    /// Tells that a grammar was compiled, or is none.
    pub(crate) fn compiled(&self, compiled: CompiledFor) {
        self.put(Inbound::Compiled(compiled), None);
    }

    /// The device ended a step.
    pub fn step_ended(&self) {
        self.put(Inbound::StepEnded, None);
    }

    /// Wakes the worker, to look why it has failed.
    pub(crate) fn wake(&self) {
        self.put(Inbound::StepEnded, None);
    }

    /// Asks the worker to take nothing new.
    pub fn drain(&self) {
        self.put(Inbound::Drain, None);
    }

    /// Asks the worker to end.
    pub fn shutdown(&self) {
        self.put(Inbound::Shutdown, None);
    }

    /// `false`: the worker has ended.
    fn put(&self, event: Inbound, share: Option<Share>) -> bool {
        self.sender.send(Waiting { event, _share: share }).is_ok()
    }
}

impl SessionInput {
    /// Bytes for the worker, as soon as its inbox has room. `false`: it has ended.
    pub async fn send(&self, bytes: Vec<u8>) -> bool {
        let share = self.worker.routers.take(bytes.len()).await;
        self.put(bytes, share)
    }

    /// Puts bytes for the worker in its inbox, now. `false`: its inbox is full, or it has ended.
    pub fn try_send(&self, bytes: Vec<u8>) -> bool {
        self.worker.routers.try_take(bytes.len(), 0).is_some_and(|share| self.put(bytes, share))
    }

    fn put(&self, bytes: Vec<u8>, share: Share) -> bool {
        self.worker.put(Inbound::Session { session: self.id, bytes }, Some(share))
    }
}

impl Drop for SessionInput {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}
