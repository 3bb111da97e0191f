//! The copy threads: threads of an agent that watch progress words and copy, where this process can. One thread
//! copies by far less than memory gives, so there are several; a transfer is one thread's from its post to its
//! end.
//!
//! A copy thread goes round the posted transfers and copies a bounded share of each whose gate is open. When no
//! gate is open it sleeps until a word is raised, here or in another process, so that waiting for layers costs the
//! cores it shares nothing; without transfers it sleeps until one is posted.

use crate::agent::event::{TransferError, TransferId, TransferReport};
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::memory::copy::copy_racing;
use crate::transfer::timeline::{Moment, note};
use crate::transfer::{Batch, Transfer, Work};
use crate::wake::{SHARED_FUTEXES_MAX, SharedFutex, Signal, Wake};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are copied for a transfer before it is the next one's turn, and cancels are looked at.
const TURN_BYTES: usize = 4 << 20;
/// Larger reads are not copied by who posts them: it has other things to do. So many take some 25 microseconds,
/// and to wake a copy thread and be woken by it takes as long at least, where cores are idle twice that.
const AT_ONCE_BYTES_MAX: u64 = 256 << 10;
/// Cores for each copy thread: they are the engine's before they are anybody's, and few threads fill what memory gives.
const CORES_EACH: usize = 4;
/// Copy threads of an agent, at least and at most.
const COPY_THREADS_MIN: usize = 2;
const COPY_THREADS_MAX: usize = 8;
/// How long one sleeps at most when it waits for the words of more processes than one sleep can wait for.
const CROWD_NAP: Duration = Duration::from_millis(1);

/// The copy threads of an agent.
pub(crate) struct CopyThreads(Vec<CopyThread>);

/// One of them.
pub(crate) struct CopyThread {
    state: Mutex<State>,
    /// What its thread works on; nobody else looks while that runs.
    active: Mutex<VecDeque<Posted>>,
    /// Bytes of the transfers that it has.
    load: AtomicU64,
    signal: Arc<Signal>,
}

struct State {
    posted: VecDeque<Posted>,
    cancelled: Vec<TransferId>,
    closed: bool,
}

struct Posted {
    id: TransferId,
    transfer: Transfer,
    next: Cursor,
    at: Instant,
    begun: Option<Instant>,
    wire: Duration,
}

/// What is copied next.
#[derive(Clone, Copy, Default)]
struct Cursor {
    batch: usize,
    piece: usize,
    /// Bytes of the piece that are copied.
    offset: usize,
}

impl Transfer {
    fn batches(&self) -> &[Batch] {
        match &self.work {
            Work::Copies(batches) => batches,
            Work::Reads(_) | Work::Stream(_) => &[],
        }
    }
}

/// Copies a small transfer whose gates are open, on the caller's thread: cheaper than waking another. `None`: it is not
/// small, a gate is closed or the peer is gone.
pub(crate) fn copy_at_once(id: TransferId, transfer: &Transfer) -> Option<TransferReport> {
    let batches = transfer.batches();
    if transfer.bytes() > AT_ONCE_BYTES_MAX || transfer.link.is_gone() {
        return None;
    }
    let gate = batches.iter().map(|batch| batch.gate).max().unwrap_or(0);
    if gate > 0 && gate > transfer.link.progress() {
        return None;
    }
    let begin = now();
    for batch in batches {
        note(Moment::Begun, id, &transfer.link, || (batch.gate, batch.bytes()));
        for piece in 0..batch.pieces.len() {
            copy(batch, piece, 0, batch.pieces[piece].len);
        }
        note(Moment::Read, id, &transfer.link, || (batch.gate, batch.bytes()));
    }
    let wire = now().duration_since(begin);
    let (lane, bytes) = (transfer.lane(), transfer.bytes());
    Some(TransferReport { lane, rails: 1, bytes, wire_bytes: bytes, queued: Duration::ZERO, wire, elapsed: wire })
}

/// Copies `len` bytes of a piece from `offset` in it, both inside of it.
fn copy(batch: &Batch, piece: usize, offset: usize, len: usize) {
    let piece = &batch.pieces[piece];
    debug_assert!(offset + len <= piece.len);
    // SAFETY: `Prepared::check` checked the piece against both regions, which the batch holds mapped; the
    // destination is the caller's own and lent to this transfer until it ends.
    unsafe {
        let from = batch.source.as_ptr().add(piece.from as usize + offset);
        let to = batch.destination.as_ptr().add(piece.to as usize + offset);
        copy_racing(from, to, len);
    }
}

impl Posted {
    fn gate(&self) -> Option<u64> {
        self.transfer.batches().get(self.next.batch).map(|batch| batch.gate)
    }

    /// Copies what is open, up to a turn's bytes. Whether it copied anything.
    fn advance(&mut self) -> bool {
        let mut progress = self.transfer.link.progress();
        let begin = now();
        let mut left = TURN_BYTES;
        while let Some(batch) = self.transfer.batches().get(self.next.batch).filter(|_| left > 0) {
            if batch.gate > progress {
                progress = self.transfer.link.progress();
                if batch.gate > progress {
                    break;
                }
            }
            if left == TURN_BYTES {
                self.begun.get_or_insert(begin);
                self.transfer.link.speed().begin_copy(begin);
            }
            let Cursor { piece, offset, .. } = self.next;
            if piece == 0 && offset == 0 {
                note(Moment::Begun, self.id, &self.transfer.link, || (batch.gate, batch.bytes()));
            }
            let len = (batch.pieces[piece].len - offset).min(left);
            copy(batch, piece, offset, len);
            left -= len;
            if offset + len < batch.pieces[piece].len {
                self.next.offset += len;
            } else if piece + 1 < batch.pieces.len() {
                self.next = Cursor { piece: piece + 1, offset: 0, ..self.next };
            } else {
                note(Moment::Read, self.id, &self.transfer.link, || (batch.gate, batch.bytes()));
                self.next = Cursor { batch: self.next.batch + 1, piece: 0, offset: 0 };
            }
        }
        if left < TURN_BYTES {
            let end = now();
            self.wire += end.duration_since(begin);
            self.transfer.link.speed().end_copy((TURN_BYTES - left) as u64, end);
        }
        left < TURN_BYTES
    }

    fn report(&self) -> TransferReport {
        TransferReport {
            lane: self.transfer.lane(),
            rails: 1,
            bytes: self.transfer.bytes(),
            wire_bytes: self.transfer.bytes(),
            queued: self.begun.unwrap_or(self.at).duration_since(self.at),
            wire: self.wire,
            elapsed: now().duration_since(self.at),
        }
    }
}

impl CopyThreads {
    pub(crate) fn new(posted_max: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self(
            (0..(cores / CORES_EACH).clamp(COPY_THREADS_MIN, COPY_THREADS_MAX))
                .map(|_| CopyThread::new(posted_max))
                .collect(),
        )
    }

    /// All of them, each of which wants a thread.
    pub(crate) fn all(&self) -> &[CopyThread] {
        &self.0
    }

    /// Makes them look again.
    pub(crate) fn wake(&self) {
        self.0.iter().for_each(CopyThread::wake);
    }

    /// Gives a transfer to the one that has the fewest bytes to copy. Gives it back if that takes none any more.
    pub(crate) fn post(&self, id: TransferId, transfer: Transfer) -> Option<Transfer> {
        let idlest = self.0.iter().min_by_key(|thread| thread.load.load(Ordering::Relaxed));
        idlest.expect("there is one at least").post(id, transfer)
    }

    /// Whoever has it ends it.
    pub(crate) fn cancel(&self, id: TransferId) {
        self.0.iter().for_each(|thread| thread.cancel(id));
    }

    pub(crate) fn close(&self) {
        self.0.iter().for_each(CopyThread::close);
    }
}

impl CopyThread {
    fn new(posted_max: usize) -> Self {
        let state = State {
            posted: VecDeque::with_capacity(posted_max),
            cancelled: Vec::with_capacity(posted_max),
            closed: false,
        };
        let active = Mutex::new(VecDeque::with_capacity(posted_max));
        Self { state: Mutex::new(state), active, load: AtomicU64::new(0), signal: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.signal.wake();
    }

    fn post(&self, id: TransferId, transfer: Transfer) -> Option<Transfer> {
        let mut state = self.lock();
        if state.closed {
            return Some(transfer);
        }
        self.load.fetch_add(transfer.bytes(), Ordering::Relaxed);
        let next = Cursor::default();
        state.posted.push_back(Posted { id, transfer, next, at: now(), begun: None, wire: Duration::ZERO });
        drop(state);
        self.wake();
        None
    }

    fn cancel(&self, id: TransferId) {
        // Never refused, or a destination would stay lent until its gates open. Emptied in every round, and
        // callers cancel a transfer once, so it holds about `posted_max` at most.
        self.lock().cancelled.push(id);
        self.wake();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.wake();
    }

    /// The thread's body. Returns after `close`, with every open transfer ended as cancelled, or after a panic,
    /// with every one failed.
    pub(crate) fn run(&self, agent: &AgentShared) -> io::Result<()> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        agent.watch(|| {
            self.carry_on(agent, &mut active);
            Ok(())
        });
        active.append(&mut self.lock().posted);
        agent.finish(|| {
            while let Some(posted) = active.pop_front() {
                self.end(agent, posted, Err(TransferError::Cancelled));
            }
        });
        Ok(())
    }

    /// Copies until `close`.
    fn carry_on(&self, agent: &AgentShared, active: &mut VecDeque<Posted>) {
        let wake: Arc<dyn Wake> = self.signal.clone();
        let posted_max = agent.config.posted_max;
        let mut cancelled: Vec<TransferId> = Vec::with_capacity(posted_max);
        let mut futexes: Vec<SharedFutex> = Vec::with_capacity(SHARED_FUTEXES_MAX);
        loop {
            let seen = self.signal.count();
            let mut state = self.lock();
            active.append(&mut state.posted);
            std::mem::swap(&mut cancelled, &mut state.cancelled);
            let closed = state.closed;
            drop(state);
            if closed {
                return;
            }
            for id in cancelled.drain(..) {
                let posted = active.iter().position(|posted| posted.id == id).and_then(|at| active.remove(at));
                if let Some(posted) = posted {
                    self.end(agent, posted, Err(TransferError::Cancelled));
                }
            }
            if self.round(agent, active) {
                continue;
            }
            futexes.clear();
            if active.iter().all(|posted| closed_gate(posted, &wake, &mut futexes)) {
                let at_most = (futexes.len() > SHARED_FUTEXES_MAX).then_some(CROWD_NAP);
                self.signal.sleep(seen, &futexes, at_most);
            }
        }
    }

    /// Copies a share of each transfer; whether anything moved or ended.
    fn round(&self, agent: &AgentShared, active: &mut VecDeque<Posted>) -> bool {
        let mut moved = false;
        for _ in 0..active.len() {
            // It stays there while it is worked on: a panic leaves it to be ended.
            let Some(posted) = active.front_mut() else { break };
            let gone = posted.transfer.link.is_gone();
            moved |= gone || posted.advance();
            if !gone && posted.gate().is_some() {
                active.rotate_left(1);
            } else if let Some(posted) = active.pop_front() {
                moved = true;
                let report = posted.report();
                if !gone {
                    agent.read(&posted.transfer.link, &report);
                }
                self.end(agent, posted, if gone { Err(TransferError::PeerGone) } else { Ok(report) });
            }
        }
        moved
    }

    fn end(&self, agent: &AgentShared, posted: Posted, result: Result<TransferReport, TransferError>) {
        self.load.fetch_sub(posted.transfer.bytes(), Ordering::Relaxed);
        let (id, result) = (posted.id, result.map_err(|error| agent.outcome(error)));
        posted.transfer.end(result);
        agent.end_with(id, result);
    }
}

/// Asks to be woken when the peer's word is raised: by its bell, or by the word in `futexes`. `false`: the gate of
/// the next batch is open already.
fn closed_gate(posted: &Posted, wake: &Arc<dyn Wake>, futexes: &mut Vec<SharedFutex>) -> bool {
    let link = &posted.transfer.link;
    let gate = posted.gate().unwrap_or(0);
    let seen = link.watch(wake);
    if let Some(futex) = link.futex(seen)
        && futexes.iter().all(|other| other.at != futex.at)
    {
        futexes.push(futex);
    }
    seen < gate && !link.is_gone()
}
