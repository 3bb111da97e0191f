//! A session between a router and a worker: ordered, and reliable as long as neither end dies and nobody cuts it.

use crate::event::{Life, RouterIndex, WorkerIndex};
use domain::Time;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use worker::SessionId;

/// A session of the world. Never reused.
pub(crate) type SessionKey = u64;

/// Who speaks to whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Direction {
    ToWorker,
    ToRouter,
}

/// What a session carries.
#[derive(Debug)]
pub(crate) enum Frame {
    /// The worker says who it is: the session begins for the router.
    Hello,
    Bytes(Vec<u8>),
    /// The other end is gone.
    End,
}

/// One way of a session.
#[derive(Debug, Default)]
pub(crate) struct Way {
    pub(crate) frames: VecDeque<Frame>,
    /// Nothing arrives before this.
    pub(crate) last: Time,
    /// Nothing arrives any more, and nobody is told.
    pub(crate) mute: bool,
    /// Frames with tokens arrive twice.
    pub(crate) repeats: bool,
    /// Frames sent and not arrived, ends and hellos aside.
    pub(crate) in_flight: Arc<AtomicUsize>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) router: (RouterIndex, Life),
    pub(crate) worker: (WorkerIndex, Life),
    /// The worker that the router dialed. Another one may be there.
    pub(crate) sought: WorkerIndex,
    /// Its name at the worker.
    pub(crate) id: SessionId,
    /// What tells the worker that the router's end is gone.
    pub(crate) ended: Arc<AtomicBool>,
    pub(crate) to_worker: Way,
    pub(crate) to_router: Way,
    pub(crate) router_open: bool,
    pub(crate) worker_open: bool,
}

impl Session {
    pub(crate) fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::ToWorker => &mut self.to_worker,
            Direction::ToRouter => &mut self.to_router,
        }
    }
}
