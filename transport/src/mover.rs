//! The mover: the thread of an agent that watches progress words and copies.
//!
//! It goes round the posted transfers and copies one batch of each whose gate is open. When no gate is open it sleeps
//! until a word is raised, so that waiting for layers costs the cores it shares nothing; without transfers it sleeps until
//! one is posted.

use crate::copy::copy_racing;
use crate::event::{AgentEvent, Completion, TransferError, TransferId, TransferReport};
use crate::hub::Station;
use crate::transfer::{PostError, Transfer};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long it sleeps at most while gates are closed: peers that leave raise nothing.
const NAP: Duration = Duration::from_millis(10);

pub(crate) struct Mover {
    state: Mutex<State>,
    /// The thread that runs it.
    thread: OnceLock<Thread>,
    posted_max: usize,
    /// Where completions go.
    own: Arc<Station>,
}

struct State {
    posted: VecDeque<Posted>,
    /// Posted and not ended, the ones in the mover's hands included.
    open: usize,
    cancelled: Vec<TransferId>,
    next_id: u64,
    closed: bool,
}

struct Posted {
    id: TransferId,
    transfer: Transfer,
    /// Batches copied so far.
    done: usize,
    at: Instant,
    begun: Option<Instant>,
    wire: Duration,
}

#[expect(clippy::disallowed_methods, reason = "transfers are timed; nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

impl Posted {
    /// Asks to be woken when the peer's word is raised. Whether the gate of the next batch is open already.
    fn watch(&self) -> bool {
        let gate = self.transfer.batches.get(self.done).map_or(0, |batch| batch.gate);
        self.transfer.station.progress.watch() >= gate
    }
}

impl Mover {
    pub(crate) fn new(posted_max: usize, own: Arc<Station>) -> Self {
        let state = State {
            posted: VecDeque::with_capacity(posted_max),
            open: 0,
            cancelled: Vec::with_capacity(posted_max),
            next_id: 1,
            closed: false,
        };
        Self { state: Mutex::new(state), thread: OnceLock::new(), posted_max, own }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread looks at its state again; before it runs, it will anyway.
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn post(&self, transfer: Transfer) -> Result<TransferId, PostError> {
        let mut state = self.lock();
        if state.closed {
            return Err(PostError::Closed);
        }
        if state.open == self.posted_max {
            return Err(PostError::Full(self.posted_max));
        }
        let id = TransferId(state.next_id);
        state.next_id += 1;
        state.open += 1;
        state.posted.push_back(Posted { id, transfer, done: 0, at: now(), begun: None, wire: Duration::ZERO });
        drop(state);
        self.wake();
        Ok(id)
    }

    pub(crate) fn cancel(&self, id: TransferId) {
        // Never refused, or a destination would stay lent until its gates open. Emptied in every round, and callers cancel
        // a transfer once, so it holds about `posted_max` at most.
        self.lock().cancelled.push(id);
        self.wake();
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake();
    }

    /// The thread's body. Returns after `close`, with every open transfer ended as cancelled.
    pub(crate) fn run(&self) {
        self.thread.get_or_init(std::thread::current);
        let mut active: VecDeque<Posted> = VecDeque::with_capacity(self.posted_max);
        let mut cancelled: Vec<TransferId> = Vec::with_capacity(self.posted_max);
        loop {
            let mut state = self.lock();
            if state.closed {
                active.append(&mut state.posted);
                drop(state);
                active.drain(..).for_each(|posted| self.end(posted, Err(TransferError::Cancelled)));
                return;
            }
            active.append(&mut state.posted);
            std::mem::swap(&mut cancelled, &mut state.cancelled);
            drop(state);
            for id in cancelled.drain(..) {
                if let Some(at) = active.iter().position(|posted| posted.id == id) {
                    let posted = active.remove(at).expect("the position was just found");
                    self.end(posted, Err(TransferError::Cancelled));
                }
            }
            // A change that comes from here on leaves a token, and the park returns at once.
            if active.is_empty() {
                std::thread::park();
            } else if !self.round(&mut active) && active.iter().all(|posted| !posted.watch()) {
                std::thread::park_timeout(NAP);
            }
        }
    }

    /// Copies at most one batch of each transfer; whether anything moved or ended.
    fn round(&self, active: &mut VecDeque<Posted>) -> bool {
        let mut moved = false;
        for _ in 0..active.len() {
            let Some(mut posted) = active.pop_front() else { break };
            if posted.transfer.station.is_gone() {
                self.end(posted, Err(TransferError::PeerGone));
                moved = true;
                continue;
            }
            let progress = posted.transfer.station.progress.get();
            if let Some(batch) = posted.transfer.batches.get(posted.done)
                && progress >= batch.gate
            {
                let begin = now();
                posted.begun.get_or_insert(begin);
                let (from, to) = (batch.source.as_ptr(), batch.destination.as_ptr());
                for copy in &batch.copies {
                    // SAFETY: `TransferBuilder::batch` checked both ranges against the regions, which the batch holds
                    // mapped; the destination is the caller's own and lent to this transfer until it ends.
                    unsafe { copy_racing(from.add(copy.from as usize), to.add(copy.to as usize), batch.len) };
                }
                posted.wire += now().duration_since(begin);
                posted.done += 1;
                moved = true;
            }
            if posted.done == posted.transfer.batches.len() {
                moved = true;
                let report = TransferReport {
                    lane: posted.transfer.lane,
                    bytes: posted.transfer.bytes,
                    queued: posted.begun.unwrap_or(posted.at).duration_since(posted.at),
                    wire: posted.wire,
                    elapsed: now().duration_since(posted.at),
                };
                self.end(posted, Ok(report));
            } else {
                active.push_back(posted);
            }
        }
        moved
    }

    fn end(&self, posted: Posted, result: Result<TransferReport, TransferError>) {
        self.lock().open -= 1;
        // Completions are bounded by `posted_max`, and their receiver keeps room for them.
        (self.own.sink)(AgentEvent::Ended(Completion { id: posted.id, result }));
    }
}
