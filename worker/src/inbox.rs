//! The inbox of a worker: the one way into its thread.

use crate::config::INBOX_EVENTS_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use transport::AgentEvent;

/// Something that happened outside the worker's thread.
#[derive(Debug)]
pub enum Inbound {
    /// Bytes of the session with the router.
    Session(Vec<u8>),
    /// From the transport agent.
    Agent(AgentEvent),
    /// The device ended a step.
    StepEnded,
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
    session_ended: Arc<AtomicBool>,
}

/// The router's end of its session with a worker. Dropping it ends the session: the worker gives up all that it does for
/// it within a tick of its loop, even if its inbox is full.
pub struct SessionInput(WorkerInput);

/// An inbox that holds a bounded number of events.
pub fn inbox() -> Inbox {
    let (sender, receiver) = sync_channel(INBOX_EVENTS_MAX);
    Inbox { receiver, input: WorkerInput { sender, session_ended: Arc::default() } }
}

impl Inbox {
    /// A sending end.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
    }
}

impl WorkerInput {
    /// The session with the router, of which a worker has one in its life.
    pub fn open_session(self) -> SessionInput {
        SessionInput(self)
    }

    pub(crate) fn session_has_ended(&self) -> bool {
        self.session_ended.load(Ordering::Acquire)
    }

    /// An event of the agent. Completions wait for room, messages do not.
    pub fn agent(&self, event: AgentEvent) -> bool {
        match event {
            AgentEvent::Ended(_) => self.sender.send(Inbound::Agent(event)).is_ok(),
            AgentEvent::Message { .. } => self.sender.try_send(Inbound::Agent(event)).is_ok(),
        }
    }

    /// The device ended a step. Waits for room.
    pub fn step_ended(&self) {
        // An error says that the worker has ended and needs no waking.
        let _ = self.sender.send(Inbound::StepEnded);
    }

    /// Asks the worker to end.
    pub fn shutdown(&self) {
        let _ = self.sender.send(Inbound::Shutdown);
    }
}

impl SessionInput {
    /// Bytes for the worker; `false` when its inbox is full or it has ended.
    pub fn send(&self, bytes: Vec<u8>) -> bool {
        self.0.sender.try_send(Inbound::Session(bytes)).is_ok()
    }
}

impl Drop for SessionInput {
    fn drop(&mut self) {
        self.0.session_ended.store(true, Ordering::Release);
    }
}
