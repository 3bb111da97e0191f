//! The mover: the thread of an agent that watches progress words and copies.
//!
//! It goes round the posted transfers and copies one batch of each whose gate is open. When no gate is open it looks
//! again for [`SPIN`], then sleeps [`NAP`] at a time, so that waiting for layers costs the cores it shares next to
//! nothing. Without transfers it sleeps until one is posted.

use crate::copy::copy_racing;
use crate::event::{AgentEvent, Completion, TransferError, TransferId, TransferReport};
use crate::hub::Station;
use crate::transfer::{PostError, Transfer};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long it watches closed gates before it sleeps.
const SPIN: Duration = Duration::from_micros(5);
/// How long it sleeps between looks at closed gates.
const NAP: Duration = Duration::from_micros(50);

pub(crate) struct Mover {
    state: Mutex<State>,
    changed: Condvar,
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

impl Mover {
    pub(crate) fn new(posted_max: usize, own: Arc<Station>) -> Self {
        let state = State {
            posted: VecDeque::with_capacity(posted_max),
            open: 0,
            cancelled: Vec::with_capacity(posted_max),
            next_id: 1,
            closed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), posted_max, own }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.changed.notify_one();
        Ok(id)
    }

    pub(crate) fn cancel(&self, id: TransferId) {
        // Never refused, or a destination would stay lent until its gates open. Emptied in every round, and callers cancel
        // a transfer once, so it holds about `posted_max` at most.
        self.lock().cancelled.push(id);
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// The thread's body. Returns after `close`, with every open transfer ended as cancelled.
    pub(crate) fn run(&self) {
        let mut active: VecDeque<Posted> = VecDeque::with_capacity(self.posted_max);
        let mut cancelled: Vec<TransferId> = Vec::with_capacity(self.posted_max);
        let mut idle_since: Option<Instant> = None;
        loop {
            let mut state = self.lock();
            if state.closed {
                active.append(&mut state.posted);
                drop(state);
                active.drain(..).for_each(|posted| self.end(posted, Err(TransferError::Cancelled)));
                return;
            }
            if active.is_empty() && state.posted.is_empty() {
                state.cancelled.clear();
                idle_since = None;
                drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            if idle_since.is_some_and(|since| now().duration_since(since) >= SPIN)
                && state.posted.is_empty()
                && state.cancelled.is_empty()
            {
                state = self.changed.wait_timeout(state, NAP).unwrap_or_else(PoisonError::into_inner).0;
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
            idle_since = if self.round(&mut active) { None } else { Some(idle_since.unwrap_or_else(now)) };
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
