//! The lane, as the rest of the agent has it: a queue for what its thread is to do, and the state that the thread
//! and a caller that waits work with, one at a time.

use super::Order;
use super::engine::{BELL, State};
use crate::lanes::lane_queue::LaneQueue;
use crate::net::socket::Socket;
use crate::wake::Doorbell;
use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The lane `tcp` of an agent.
pub(crate) struct Streams {
    lane_queue: LaneQueue<Order, Socket>,
    /// What the thread sleeps on.
    epoll: OwnedFd,
    pub(super) state: Mutex<State>,
    /// Whether a caller reads over a connection; there is one at most.
    driven: AtomicBool,
}

impl Streams {
    pub(crate) fn new(posted_max: usize) -> io::Result<Self> {
        let lane_queue = LaneQueue::new(Doorbell::new()?, posted_max);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered: see `Doorbell`.
        epoll::add(&epoll, lane_queue.bell().fd(), EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        let state = Mutex::new(State::new(lane_queue.bell().clone(), posted_max));
        Ok(Self { lane_queue, epoll, state, driven: AtomicBool::new(false) })
    }

    pub(crate) fn lane_queue(&self) -> &LaneQueue<Order, Socket> {
        &self.lane_queue
    }

    pub(super) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// `false`: another caller reads.
    pub(super) fn begin_driving(&self) -> bool {
        !self.driven.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_driving(&self) {
        self.driven.store(false, Ordering::Release);
    }

    pub(super) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }
}
