//! What may happen, and what may come of it.

use domain::{Incarnation, LeaseId, StepId, Time};

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The owner's engine or step loop goes on.
    OwnerGoesOn,
    /// The prompt's step fails in the engine.
    StepFails,
    /// The next lease has lapsed, but the owner is busy.
    OwnerClock,
    /// The owner sees what lapsed.
    OwnerExpires,
    OwnerCrashes,
    ReaderCrashes(u8),
    Deliver(u8),
    Lose(u8),
    /// Deliver it, and keep a copy under way.
    Duplicate(u8),
    /// A rank gets the room that it wants.
    GiveRoom(u8),
    ReadSlice(u8, u16),
    Quiesce(u8),
    Tick(u8),
    TimeOut(u8),
    Cancel(u8),
}

/// What an action brought about, for the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A lease was granted; `in_flight`: on a copy that was not validated.
    Granted {
        lease: LeaseId,
        rank: u8,
        at: Time,
        in_flight: bool,
    },
    Withdrawn {
        lease: LeaseId,
    },
    Renewed {
        lease: LeaseId,
        ticks: u64,
        by: u8,
    },
    /// A release was answered; `written`: all that the lease covers was written by a step that succeeded.
    Answered {
        lease: LeaseId,
        valid: bool,
        written: bool,
    },
    Acknowledged {
        lease: LeaseId,
    },
    /// The block was given to a new use.
    Reused,
    /// A slice was read from the memory of this life; `gate`: the step whose word let it through.
    Read {
        rank: u8,
        layer: u16,
        slice: u8,
        life: Incarnation,
        gate: Option<StepId>,
    },
    /// A fetch said that its copy may be used; `room`: it had a destination.
    Started {
        rank: u8,
        room: bool,
    },
    /// A fetch gave its destination back; `reading`: a read was still under way.
    Freed {
        room: bool,
        reading: bool,
    },
    /// A fetch is over; `room`: it kept its destination.
    Ended {
        room: bool,
        reading: bool,
    },
}
