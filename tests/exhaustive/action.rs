//! What may happen, and what may come of it.

use crate::process::Event;
use domain::{RequestId, WorkerId};

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Something happens at a worker that nobody sent it.
    At(WorkerId, Event),
    /// The next slice of the worker's read, by its place among the worker's reads.
    Read(WorkerId, u8),
    /// What the router says arrives, by its place in what it says.
    Told(u8),
    Crash(WorkerId),
    Deliver(u8),
    Lose(u8),
    /// Deliver it, and keep a copy under way.
    Duplicate(u8),
}

/// What an event brought about at a worker, for the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A step is about to write a block.
    Writes { request: RequestId, block: u32 },
    /// A step that succeeded has written the last of a prompt.
    Wrote { request: RequestId },
    /// A step goes on from what was read for the request.
    Started { request: RequestId },
}
