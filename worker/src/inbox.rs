//! The inbox of a worker: the one way into its thread.

use crate::config::INBOX_EVENTS_MAX;
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
pub struct WorkerInput(SyncSender<Inbound>);

/// An inbox that holds a bounded number of events.
pub fn inbox() -> Inbox {
    let (sender, receiver) = sync_channel(INBOX_EVENTS_MAX);
    Inbox { receiver, input: WorkerInput(sender) }
}

impl Inbox {
    /// A sending end.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
    }
}

impl WorkerInput {
    /// Bytes of the session; `false` when the inbox is full or the worker has ended.
    pub fn session(&self, bytes: Vec<u8>) -> bool {
        self.0.try_send(Inbound::Session(bytes)).is_ok()
    }

    /// An event of the agent. Completions wait for room, messages do not.
    pub fn agent(&self, event: AgentEvent) -> bool {
        match event {
            AgentEvent::Ended(_) => self.0.send(Inbound::Agent(event)).is_ok(),
            AgentEvent::Message { .. } => self.0.try_send(Inbound::Agent(event)).is_ok(),
        }
    }

    /// The device ended a step. Waits for room.
    pub fn step_ended(&self) {
        // An error says that the worker has ended and needs no waking.
        let _ = self.0.send(Inbound::StepEnded);
    }

    /// Asks the worker to end.
    pub fn shutdown(&self) {
        let _ = self.0.send(Inbound::Shutdown);
    }
}
