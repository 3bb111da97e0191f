//! What a reader says over a connection for bytes: requests, and what it takes back.
//!
//! The thread that posts a transfer asks for its bytes at once; only what the socket does not take then is left to the
//! thread of the lane. A connection that breaks is taken from here, and one that is made anew is
//! put in its place: each is a life of its own, and what was asked for in an earlier one is not answered any more.

use super::plan::{Request, StreamPlan};
use super::wire::{Asked, PIECES_OPEN_MAX, REQUEST_HEAD};
use crate::net::socket::{SendBuffer, Socket};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests that are sent at once.
const REQUESTS_PER_SEND: usize = 32;
/// Requests for which there is room from the beginning, so that posting allocates nothing.
const REQUESTS_RESERVED: usize = 512;

/// The speaking half of a rail's connection.
pub(crate) struct Asker {
    /// Which of its link's rails it is.
    index: usize,
    /// Counts connections.
    life: AtomicU32,
    state: Mutex<State>,
}

struct State {
    /// `None`: the rail is not used now.
    socket: Option<Arc<Socket>>,
    /// What is to be sent.
    asking: VecDeque<Asking>,
    /// Bytes of the first that are sent.
    asked: usize,
    /// Requests that ever were among them.
    places: u64,
    /// The place of the last one that was sent to its end.
    sent: u64,
    /// Pieces that were asked for and have not landed, of transfers under way.
    open_pieces: usize,
}

enum Asking {
    /// A request, with its transfer.
    Read(u64, Request),
    Cancel([u8; REQUEST_HEAD]),
}

impl Asking {
    fn bytes(&self) -> &[u8] {
        match self {
            Asking::Read(_, request) => &request.frame,
            Asking::Cancel(frame) => frame,
        }
    }

    fn pieces(&self) -> usize {
        match self {
            Asking::Read(_, request) => request.pieces,
            Asking::Cancel(_) => 0,
        }
    }
}

impl Asker {
    /// Returns the `index`-th of its link, without a connection.
    pub(super) fn new(index: usize) -> Self {
        let asking = VecDeque::with_capacity(REQUESTS_RESERVED);
        let state = State { socket: None, asking, asked: 0, places: 0, sent: 0, open_pieces: 0 };
        Self { index, life: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Speaks over `socket`, which is non-blocking, from now on.
    pub(super) fn connect(&self, socket: Socket) {
        let mut state = self.lock();
        (state.asked, state.open_pieces) = (0, 0);
        state.asking.clear();
        state.socket = Some(Arc::new(socket));
        self.life.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends the connection for both ends, though other threads may still hold it.
    pub(super) fn disconnect(&self) {
        let mut state = self.lock();
        if let Some(socket) = state.socket.take() {
            socket.shut_down();
        }
        state.asking.clear();
        self.life.fetch_add(1, Ordering::AcqRel);
    }

    /// The connection, if there is one.
    pub(super) fn socket(&self) -> Option<Arc<Socket>> {
        self.lock().socket.clone()
    }

    /// Returns which life its connection is.
    pub(super) fn life(&self) -> u32 {
        self.life.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a transfer's requests fit without allocating.
    pub(super) fn has_room(&self, plan: &StreamPlan) -> bool {
        let state = self.lock();
        state.asking.capacity() - state.asking.len() >= plan.requests.len()
    }

    /// Asks for what a transfer wants over this rail and was not asked for. What [`Asker::flush`] says.
    pub(super) fn ask(&self, plan: &mut StreamPlan) -> io::Result<bool> {
        let mut state = self.lock();
        let number = plan.number;
        for request in plan.requests.iter_mut().filter(|request| request.rail == Some(self.index) && request.life == 0)
        {
            // Without a connection it stays unasked, and is seen to be.
            if state.socket.is_none() {
                return Err(io::ErrorKind::NotConnected.into());
            }
            state.places += 1;
            (request.life, request.place) = (self.life(), state.places);
            state.asking.push_back(Asking::Read(number, request.clone()));
        }
        state.flush()
    }

    /// Sends what waits. `false`: the socket takes no more now. Errors: the connection failed.
    pub(super) fn flush(&self) -> io::Result<bool> {
        self.lock().flush()
    }

    /// Returns whether the owner knows of a request.
    pub(super) fn has_sent(&self, request: &Request) -> bool {
        // The thread that sends it holds the lock until that is noted.
        let state = self.lock();
        request.life == self.life() && request.place <= state.sent
    }

    /// So many pieces, asked for here, landed.
    pub(super) fn landed(&self, pieces: usize) {
        self.lock().open_pieces -= pieces;
    }

    /// The transfer ended before all its pieces landed: what is still to be asked for is not, and what was asked
    /// for is taken back.
    pub(super) fn give_up(&self, plan: &StreamPlan) {
        let of_it = |asking: &Asking| matches!(asking, Asking::Read(transfer, _) if *transfer == plan.number);
        let mut state = self.lock();
        // The request that is being sent must be sent to its end.
        let begun = usize::from(state.asked > 0);
        let unasked: Vec<usize> = state
            .asking
            .iter()
            .skip(begun)
            .filter(|asking| of_it(asking))
            .filter_map(|asking| if let Asking::Read(_, request) = asking { Some(request.first) } else { None })
            .collect();
        let mut place = 0;
        state.asking.retain(|asking| {
            place += 1;
            place <= begun || !of_it(asking)
        });
        let life = self.life();
        let asked_for = plan.requests.iter().filter(|request| (request.rail, request.life) == (Some(self.index), life));
        let asked_for = asked_for.filter(|request| !unasked.contains(&request.first));
        let open = asked_for.map(|request| {
            let landings = &plan.landings[request.first..request.first + request.pieces];
            landings.iter().filter(|landing| !landing.landed).count()
        });
        let open: usize = open.sum();
        if open > 0 {
            state.open_pieces -= open;
            state.asking.push_back(Asking::Cancel(Asked::Cancel { transfer: plan.number }.encode()));
        }
    }
}

impl State {
    fn flush(&mut self) -> io::Result<bool> {
        let Some(socket) = &self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        loop {
            let empty = SendBuffer::new(&[]);
            let mut buffers = [empty; REQUESTS_PER_SEND];
            let (mut count, mut pieces) = (0, self.open_pieces);
            for (buffer, asking) in buffers.iter_mut().zip(&self.asking) {
                // The pieces of one that is begun are counted.
                let skip = if count == 0 { self.asked } else { 0 };
                pieces += if skip == 0 { asking.pieces() } else { 0 };
                if pieces > PIECES_OPEN_MAX {
                    break;
                }
                *buffer = SendBuffer::new(&asking.bytes()[skip..]);
                count += 1;
            }
            if count == 0 {
                return socket.flush();
            }
            let mut sent = match socket.send(&buffers[..count]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            while sent > 0
                && let Some(first) = self.asking.front()
            {
                if self.asked == 0 {
                    self.open_pieces += first.pieces();
                }
                let left = first.bytes().len() - self.asked;
                if sent < left {
                    self.asked += sent;
                    break;
                }
                sent -= left;
                self.asked = 0;
                if let Some(Asking::Read(_, request)) = self.asking.pop_front() {
                    self.sent = request.place;
                }
            }
        }
    }
}
