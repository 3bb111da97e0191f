//! The inbox of a worker: the one way into its thread.

use crate::commands::{Answer, Command};
use crate::config::INBOX_EVENTS_MAX;
use crate::outbox::SessionSend;
use crate::sessions::SessionId;
use crate::tiers::TierEnd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use transport::{AgentEvent, Failure};

/// Something that happened outside the worker's thread.
pub enum Inbound {
    /// A router began a session.
    Opened {
        /// Which.
        session: SessionId,
        /// Takes what is said to the router.
        send: SessionSend,
        /// Set once the router's end is gone.
        ended: Arc<AtomicBool>,
    },
    /// Bytes of a session.
    Session {
        /// Which.
        session: SessionId,
        /// A message.
        bytes: Vec<u8>,
    },
    /// From the transport agent.
    Agent(AgentEvent),
    /// From a tier.
    Tier(TierEnd),
    /// From an operator.
    Command {
        /// What is asked.
        command: Command,
        /// Takes the answer, without waiting.
        reply: Box<dyn FnOnce(Answer) + Send>,
    },
    /// The device ended a step.
    StepEnded,
    /// Take nothing new; what runs goes on.
    Drain,
    /// End now; what runs is cancelled.
    Shutdown,
}

/// The receiving end, to be handed to [`crate::Worker::start`].
pub struct Inbox {
    pub(crate) receiver: Receiver<Inbound>,
    pub(crate) input: WorkerInput,
}

/// The sending end. Cheap to clone.
#[derive(Clone)]
pub struct WorkerInput {
    sender: SyncSender<Inbound>,
    sessions: Arc<AtomicU64>,
    failure: Failure,
}

/// The router's end of its session with a worker. Dropping it ends the session: the worker gives up all that it does for
/// it within a tick of its loop, even if its inbox is full.
pub struct SessionInput {
    id: SessionId,
    sender: SyncSender<Inbound>,
    ended: Arc<AtomicBool>,
}

/// An inbox that holds a bounded number of events.
pub fn inbox() -> Inbox {
    let (sender, receiver) = sync_channel(INBOX_EVENTS_MAX);
    Inbox { receiver, input: WorkerInput { sender, sessions: Arc::default(), failure: Failure::new() } }
}

impl Inbox {
    /// A sending end.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
    }
}

impl WorkerInput {
    /// Where the worker's threads report what they cannot handle; it ends then.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Begins a session with a router. `send` takes what is said to it, and is dropped when the worker ends the session.
    /// `None`: the worker has ended, or its inbox is full.
    pub fn open_session(&self, send: SessionSend) -> Option<SessionInput> {
        let id = SessionId(self.sessions.fetch_add(1, Ordering::Relaxed));
        let ended = Arc::<AtomicBool>::default();
        let opened = Inbound::Opened { session: id, send, ended: ended.clone() };
        self.sender.try_send(opened).ok()?;
        Some(SessionInput { id, sender: self.sender.clone(), ended })
    }

    /// An event of the agent. `false`: there is no room. The agent offers it again, unless it is a message.
    pub fn agent(&self, event: AgentEvent) -> bool {
        self.sender.try_send(Inbound::Agent(event)).is_ok()
    }

    /// A move of a tier ended, or the tier did. Waits for room.
    pub fn tier_ended(&self, end: TierEnd) {
        // An error says that the worker has ended.
        let _ = self.sender.send(Inbound::Tier(end));
    }

    /// Asks for something; `reply` takes the answer in the worker's thread, and must not wait there. `false`: there is no room, or
    /// the worker has ended.
    pub fn command(&self, command: Command, reply: impl FnOnce(Answer) + Send + 'static) -> bool {
        self.sender.try_send(Inbound::Command { command, reply: Box::new(reply) }).is_ok()
    }

    /// The device ended a step. Waits for room.
    pub fn step_ended(&self) {
        // An error says that the worker has ended and needs no waking.
        let _ = self.sender.send(Inbound::StepEnded);
    }

    /// Wakes the worker, to look why it has failed.
    pub(crate) fn wake(&self) {
        // One that has no room is awake.
        let _ = self.sender.try_send(Inbound::StepEnded);
    }

    /// Asks the worker to take nothing new.
    pub fn drain(&self) {
        let _ = self.sender.send(Inbound::Drain);
    }

    /// Asks the worker to end.
    pub fn shutdown(&self) {
        let _ = self.sender.send(Inbound::Shutdown);
    }
}

impl SessionInput {
    /// Bytes for the worker; `false` when its inbox is full or it has ended.
    pub fn send(&self, bytes: Vec<u8>) -> bool {
        self.sender.try_send(Inbound::Session { session: self.id, bytes }).is_ok()
    }
}

impl Drop for SessionInput {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}
