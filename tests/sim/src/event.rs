//! What can happen in a world. Whatever happens to a life of a process names it: of a life that is over nothing
//! happens.

use crate::disk::Move;
use crate::session::{Direction, SessionKey};
use discovery::Sight;
use domain::session::Role;
use domain::{Choice, RequestId, WorkerId};

/// Index of a worker in the world.
pub(crate) type WorkerIndex = usize;
/// Index of a router in the world.
pub(crate) type RouterIndex = usize;
/// Lives of a process, counted from 1.
pub(crate) type Life = u64;
/// A read in progress, never reused.
pub(crate) type ReadKey = u64;

#[derive(Debug)]
pub(crate) enum Event {
    /// A client asks.
    Arrive { ask: usize },
    /// A client hangs up.
    HangUp { request: RequestId },
    /// A step loop has its turn.
    Wake { worker: WorkerIndex, life: Life },
    /// A device writes its next layer, or ends its step.
    Layer { worker: WorkerIndex, life: Life },
    /// A message between workers arrives.
    Peer { from: WorkerId, to: WorkerIndex, bytes: Vec<u8> },
    /// The next frame of a session arrives.
    Frame { session: SessionKey, direction: Direction },
    /// A router tries to begin a session.
    Dial { router: RouterIndex, life: Life, worker: WorkerIndex },
    /// A worker's call to be listed comes to the directory.
    Register { worker: WorkerIndex, life: Life },
    /// The lease of what is listed of a worker's life lapses.
    Lapse { worker: WorkerIndex, life: Life },
    /// The directory answers a router with all that is listed.
    List { router: RouterIndex, life: Life },
    /// Something that the directory showed comes to a router.
    Sight { router: RouterIndex, life: Life, sight: Box<Sight> },
    /// A deadline of a router may have passed.
    Tick { router: RouterIndex, life: Life },
    /// A client's text holds a stop string.
    StopString { router: RouterIndex, life: Life, request: RequestId, choice: Choice },
    /// The next bytes of a read.
    Piece { read: ReadKey },
    /// A move between a worker and its disk ends.
    Moved { worker: WorkerIndex, life: Life, what: Move },
    /// An agent learns whether it reaches a peer.
    Connect { worker: WorkerIndex, life: Life, peer: WorkerId, reached: bool },
    /// A fault begins, if it waits for no step.
    Strike { fault: usize },
    /// It is over.
    Recover { fault: usize },
    /// A worker that was drained must end.
    DrainDeadline { worker: WorkerIndex, life: Life },
    /// What lay in the sockets of a worker process that stood still comes to its inbox.
    Sockets { worker: WorkerIndex, life: Life },
    /// A process that stood still goes on.
    Resume { process: usize },
    /// A process comes back.
    Return { process: usize },
    /// An operator asks for something about a request's prompt.
    Operate { ask: usize },
    /// All faults are over.
    Heal,
    /// Operators take back what they asked of the workers that have this role when they start.
    Undo { role: Role },
    /// Requests that must be served regularly.
    Probe,
}
