//! The copy threads: threads of an agent that watch progress words and copy, where this process can. One thread
//! copies by far less than memory gives, so there are several; a transfer is one thread's from its post to its
//! end.
//!
//! A copy thread goes round the posted transfers and copies a bounded share of each whose gate is open. When no
//! gate is open it sleeps until a word is raised, here or in another process, so that waiting for layers costs the
//! cores it shares nothing; without transfers it sleeps until one is posted.

use crate::agent::event::{TransferError, TransferId, TransferReport};
use crate::agent::link::Link;
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::lanes::lane_queue::{LaneQueue, Open, Orders, Posted};
use crate::lanes::nvlink::{Fetches, Waker};
use crate::transfer::cursor::Cursor;
use crate::transfer::prepared::PlanGuard;
use crate::transfer::run_times::{RunTime, RunTimes};
use crate::transfer::timeline::{Moment, note};
use crate::transfer::{Batch, Piece, Reach, Transfer, Work};
use crate::wake::{SHARED_FUTEXES_MAX, SharedFutex, Signal, Wake};
use kv_memory::{CopyError, CopyOrder, Frame, Place, PoolRange, SumOf, copy_racing};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use threads::Doing;

/// Bytes that are copied for a transfer before it is the next one's turn, and cancels are looked at.
const TURN_BYTES: usize = 4 << 20;
/// The thread that posts a larger read does not copy it: it has other work. So many bytes take some 25 microseconds.
/// To wake a copy thread and be woken by it takes as long at least, and twice that where cores are idle.
const AT_ONCE_BYTES_MAX: u64 = 256 << 10;
/// Cores for each copy thread: they are the engine's before they are anybody's, and few threads fill what memory gives.
const CORES_EACH: usize = 4;
/// Copy threads of an agent, at least and at most.
const COPY_THREADS_MIN: usize = 2;
const COPY_THREADS_MAX: usize = 8;
/// Bytes that go by way of a frame at once, where an end is memory of a device.
const FRAME_BYTES: usize = 1 << 20;
/// How long one sleeps at most when it waits for the words of more processes than one sleep can wait for.
const CROWD_NAP: Duration = Duration::from_millis(1);

/// The copy threads of an agent.
pub(crate) struct CopyThreads(Vec<CopyThread>);

/// One of them.
pub(crate) struct CopyThread {
    queue: Queue,
    /// What its thread works on; no other thread looks while that runs.
    active: Mutex<VecDeque<Copying>>,
    /// Bytes of the transfers that it has.
    load: AtomicU64,
}

/// Copy threads have no orders of their own, and no peer reads over them. They sleep on a futex, since the progress
/// words of other processes are futexes, too.
type Queue = LaneQueue<Infallible, Infallible, Signal>;

/// A transfer that is being copied.
struct Copying {
    /// What a device copies for it; dropped first.
    fetches: Fetches,
    open: Open,
    batches: PlanGuard<Vec<Batch>>,
    next: Cursor,
    /// How it ends once no device copies for it any more.
    ending: Option<Result<(), TransferError>>,
}

/// What came of the turn of a transfer.
enum Turn {
    /// Nothing can be done for it now.
    Idle,
    /// Bytes of it moved, or were ordered.
    Moved,
    /// It ended so.
    Over(Result<(), TransferError>),
}

/// Copies a small transfer whose gates are open, on the caller's thread: cheaper than waking another. `None`: it is not
/// small, a gate is closed or the peer is gone.
pub(crate) fn copy_at_once(id: TransferId, transfer: &Transfer) -> Option<(TransferReport, Vec<RunTime>)> {
    let Work::Copies(batches) = &transfer.work else { return None };
    // A thread that waits for a copier has other work, too.
    let is_the_hosts = || batches.iter().all(Batch::is_the_hosts);
    if transfer.bytes() > AT_ONCE_BYTES_MAX || transfer.link.is_gone() || !is_the_hosts() {
        return None;
    }
    let gate = batches.iter().map(|batch| batch.gate).max().unwrap_or(0);
    if gate > 0 && gate > transfer.link.progress() {
        return None;
    }
    let (begin, mut runs) = (now(), transfer.timed.then(RunTimes::new));
    for batch in &**batches {
        note(Moment::Begun, id, &transfer.link, || (batch.gate, batch.bytes()));
        runs.iter_mut().for_each(|runs| runs.begun(batch.gate, now().duration_since(begin)));
        for piece in 0..batch.pieces.len() {
            let Reach::Copied { source, destination } = batch.reach() else { return None };
            // Both are the host's, so that no copier is asked.
            let copied = copy((source, destination), &batch.pieces[piece], 0, batch.pieces[piece].len, &mut None);
            debug_assert!(copied.is_ok());
        }
        note(Moment::Read, id, &transfer.link, || (batch.gate, batch.bytes()));
        runs.iter_mut().for_each(|runs| runs.read(batch.gate, now().duration_since(begin), batch.bytes() as u64));
    }
    let wire = now().duration_since(begin);
    let (lane, bytes) = (transfer.lane(), transfer.bytes());
    let queued = Duration::ZERO;
    let report = TransferReport { lane, rails: 1, bytes, wire_bytes: bytes, queued, wire, elapsed: wire };
    Some((report, runs.map_or_else(Vec::new, RunTimes::into_list)))
}

/// Copies `len` bytes of a piece between the ends of its batch, from `offset` in it, both inside of it. Where an end is
/// memory of a device, by way of `frame`, which is made then if it is not there. Errors: of a device's copier.
fn copy(
    ends: (Place<'_>, Place<'_>),
    piece: &Piece,
    offset: usize,
    len: usize,
    frame: &mut Option<Frame>,
) -> Result<(), CopyError> {
    debug_assert!(offset + len <= piece.len);
    let (from, to) = (piece.from as usize + offset, piece.to as usize + offset);
    match ends {
        (Place::Host(source), Place::Host(destination)) => {
            // SAFETY: `Prepared::check` checked the piece against both regions, which the batch holds mapped; the
            // destination is the caller's own and lent to this transfer until it ends.
            unsafe { copy_racing(source.add(from), destination.add(to), len) };
        }
        (source, destination) => {
            for at in (0..len).step_by(FRAME_BYTES) {
                let part = FRAME_BYTES.min(len - at);
                let filled = fill(frame.take(), source, from + at, part)?;
                *frame = Some(drain(filled, destination, to + at, part)?);
            }
        }
    }
    Ok(())
}

/// Copies `len` bytes from `at` in a memory to the beginning of a frame.
fn fill(frame: Option<Frame>, source: Place<'_>, at: usize, len: usize) -> Result<Frame, CopyError> {
    let new = |bytes| match source {
        Place::Host(_) => Frame::new(bytes),
        Place::Device(device) => device.copier.frame(bytes),
    };
    let mut frame = frame.map_or_else(|| new(FRAME_BYTES), Ok)?;
    match source {
        Place::Host(source) => {
            // SAFETY: as in `copy`; the frame is this thread's own.
            unsafe { copy_racing(source.add(at), frame.as_mut_ptr(), len) };
            Ok(frame)
        }
        Place::Device(device) => Ok(device.copier.gather(whole(frame, at, len)).wait()?.frame),
    }
}

/// Copies the first `len` bytes of a frame to a memory, from `at` in it on.
fn drain(frame: Frame, destination: Place<'_>, at: usize, len: usize) -> Result<Frame, CopyError> {
    match destination {
        Place::Host(destination) => {
            // SAFETY: as in `copy`.
            unsafe { copy_racing(frame.as_ptr(), destination.add(at), len) };
            Ok(frame)
        }
        Place::Device(device) => Ok(device.copier.scatter(whole(frame, at, len), 0).wait()?.frame),
    }
}

/// One range, as it is.
fn whole(frame: Frame, at: usize, len: usize) -> CopyOrder {
    CopyOrder { frame, ranges: vec![PoolRange { at: at as u64, len }], part: None, sum: SumOf::Nothing, waker: None }
}

impl Copying {
    fn new(posted: Posted) -> Option<Self> {
        let Posted { open, work } = posted;
        match work {
            Work::Copies(batches) => {
                let (fetches, next, ending) = (Fetches::default(), Cursor::default(), None);
                Some(Self { fetches, open, batches, next, ending })
            }
            Work::Reads(_) | Work::Stream(_) => None,
        }
    }

    fn id(&self) -> TransferId {
        self.open.id().unwrap_or(TransferId(0))
    }

    fn gate(&self) -> Option<u64> {
        self.batches.get(self.next.run).map(|batch| batch.gate)
    }

    /// Has it end so, unless it ends otherwise already.
    fn end_with(&mut self, result: Result<(), TransferError>) {
        self.ending.get_or_insert(result);
    }

    /// Does what can be done for it now, up to a turn's bytes.
    fn turn(&mut self, agent: &AgentShared, frame: &mut Option<Frame>, waker: &Waker) -> Turn {
        if self.open.link.is_gone() {
            self.end_with(Err(TransferError::PeerGone));
        }
        let taken = self.fetches.take(&mut self.open);
        let advanced = match taken {
            Ok(taken) if self.ending.is_none() => self.advance(frame, waker).map(|advanced| taken || advanced),
            taken => taken,
        };
        if let Err(error) = &advanced {
            let lost = device_lost(agent, &self.open.link, error);
            self.end_with(Err(lost));
        }
        match self.ending.take_if(|_| self.fetches.is_empty()) {
            Some(result) => Turn::Over(result),
            None if self.gate().is_none() && self.fetches.is_empty() => Turn::Over(Ok(())),
            None if advanced == Ok(false) => Turn::Idle,
            None => Turn::Moved,
        }
    }

    /// Returns whether nothing can be done for it until its copier wakes this thread.
    fn waits_for_copier(&self) -> bool {
        let is_laid = self.gate().is_none() || self.ending.is_some() || self.fetches.is_full();
        is_laid && !self.fetches.is_empty() && !self.fetches.is_news()
    }

    /// Copies or orders what is open, up to a turn's bytes. Whether it did. Errors: of a device's copier.
    fn advance(&mut self, frame: &mut Option<Frame>, waker: &Waker) -> Result<bool, CopyError> {
        let begin = now();
        let Self { fetches, open, batches, next, ending: _ } = self;
        let (mut progress, mut left, mut failed, mut is_ordered) = (open.link.progress(), TURN_BYTES, None, false);
        while let Some(batch) = batches.get(next.run).filter(|_| left > 0) {
            if batch.gate > progress {
                progress = open.link.progress();
                if batch.gate > progress {
                    break;
                }
            }
            let ends = match batch.reach() {
                Reach::Copied { source, destination } => (source, destination),
                Reach::Fetched { .. } if fetches.is_full() => break,
                Reach::Fetched { source, copier } => {
                    fetches.lay(open, (batch, next), (source, copier), waker);
                    is_ordered = true;
                    continue;
                }
            };
            if left == TURN_BYTES {
                open.begin(begin);
                open.link.speed().begin_copy(begin);
            }
            if next.begins_run() {
                open.note(Moment::Begun, batch.gate, batch.bytes());
            }
            let Cursor { piece, offset, .. } = *next;
            let len = (batch.pieces[piece].len - offset).min(left);
            failed = copy(ends, &batch.pieces[piece], offset, len, frame).err();
            if failed.is_some() {
                break;
            }
            left -= len;
            if next.advance(len, &batch.pieces) {
                open.note(Moment::Read, batch.gate, batch.bytes());
            }
        }
        let copied = (TURN_BYTES - left) as u64;
        if copied > 0 || failed.is_some() {
            let end = now();
            open.add_wire(end.duration_since(begin));
            open.delivered(copied);
            open.link.speed().end_copy(copied, end);
        }
        failed.map_or(Ok(copied > 0 || is_ordered), Err)
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
        self.0.iter().for_each(|thread| thread.queue.bell().wake());
    }

    /// Gives a transfer to the one that has the fewest bytes to copy. Gives it back if that takes none any more.
    pub(crate) fn post(&self, id: TransferId, transfer: Transfer) -> Option<Transfer> {
        let idlest = self.0.iter().min_by_key(|thread| thread.load.load(Ordering::Relaxed));
        idlest.expect("there is one at least").post(id, transfer)
    }

    /// Cancels a transfer: the thread that has it ends it.
    pub(crate) fn cancel(&self, id: TransferId) {
        self.0.iter().for_each(|thread| thread.queue.cancel(id));
    }

    pub(crate) fn close(&self) {
        self.0.iter().for_each(|thread| thread.queue.close());
    }
}

impl CopyThread {
    fn new(posted_max: usize) -> Self {
        let active = Mutex::new(VecDeque::with_capacity(posted_max));
        Self { queue: Queue::new(Signal::default(), posted_max), active, load: AtomicU64::new(0) }
    }

    fn post(&self, id: TransferId, transfer: Transfer) -> Option<Transfer> {
        let bytes = transfer.bytes();
        self.load.fetch_add(bytes, Ordering::Relaxed);
        let refused = self.queue.post(id, transfer, |_, _| true);
        if refused.is_some() {
            self.load.fetch_sub(bytes, Ordering::Relaxed);
        }
        refused
    }

    /// The thread's body. Returns after `close`, with every open transfer ended as cancelled, or after a panic,
    /// with every one failed.
    pub(crate) fn run(&self, agent: &AgentShared) -> io::Result<()> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let mut orders = Orders::new(agent.config.posted_max);
        agent.watch(|| {
            self.carry_on(agent, &mut active, &mut orders);
            Ok(())
        });
        // What a panic kept from being taken. The queue takes nothing more.
        active.extend(orders.posted.drain(..).filter_map(Copying::new));
        self.queue.take(&mut orders);
        active.extend(orders.posted.drain(..).filter_map(Copying::new));
        agent.finish(|| {
            while let Some(copying) = active.pop_front() {
                self.end(agent, copying, Err(TransferError::Cancelled));
            }
        });
        Ok(())
    }

    /// Copies until the queue is closed. `orders`: kept for their room.
    fn carry_on(
        &self,
        agent: &AgentShared,
        active: &mut VecDeque<Copying>,
        orders: &mut Orders<Infallible, Infallible>,
    ) {
        let signal = self.queue.bell();
        let wake: Arc<dyn Wake> = signal.clone();
        let bell = signal.clone();
        let waker: Waker = Arc::new(move || bell.wake());
        let mut futexes: Vec<SharedFutex> = Vec::with_capacity(SHARED_FUTEXES_MAX);
        let mut frame = None;
        loop {
            let seen = signal.count();
            self.queue.take(orders);
            active.extend(orders.posted.drain(..).filter_map(Copying::new));
            if orders.closed {
                return;
            }
            for id in orders.cancelled.drain(..) {
                if let Some(copying) = active.iter_mut().find(|copying| copying.id() == id) {
                    copying.end_with(Err(TransferError::Cancelled));
                }
            }
            if self.round(agent, active, &mut frame, &waker) {
                continue;
            }
            futexes.clear();
            if active.iter().all(|copying| copying.waits_for_copier() || closed_gate(copying, &wake, &mut futexes)) {
                let at_most = (futexes.len() > SHARED_FUTEXES_MAX).then_some(CROWD_NAP);
                threads::during(Doing::WaitsForCopies, || signal.sleep(seen, &futexes, at_most));
            }
        }
    }

    /// Copies a share of each transfer; whether anything moved or ended.
    fn round(
        &self,
        agent: &AgentShared,
        active: &mut VecDeque<Copying>,
        frame: &mut Option<Frame>,
        waker: &Waker,
    ) -> bool {
        let mut moved = false;
        for _ in 0..active.len() {
            // It stays there while it is worked on: a panic leaves it to be ended.
            let Some(copying) = active.front_mut() else { break };
            match copying.turn(agent, frame, waker) {
                Turn::Idle => active.rotate_left(1),
                Turn::Moved => {
                    moved = true;
                    active.rotate_left(1);
                }
                Turn::Over(result) => {
                    moved = true;
                    if let Some(copying) = active.pop_front() {
                        self.end(agent, copying, result);
                    }
                }
            }
        }
        moved
    }

    fn end(&self, agent: &AgentShared, copying: Copying, result: Result<(), TransferError>) {
        let Copying { fetches, open, batches, .. } = copying;
        // Where a panic, or the agent's end, left some under way.
        drop(fetches);
        self.load.fetch_sub(open.bytes, Ordering::Relaxed);
        open.end(agent, batches, 1, result);
    }
}

/// A copier of an end of this link failed: it is logged. How a transfer ends by it.
fn device_lost(agent: &AgentShared, link: &Link, error: &CopyError) -> TransferError {
    if *error == CopyError::Checksum {
        return TransferError::Corrupted;
    }
    let (worker, peer) = (&agent.config.name, &link.name);
    tracing::error!(worker, peer, lane = %link.lane(), %error, "bytes do not reach memory of a device, or do not leave it");
    TransferError::DeviceLost
}

/// Asks to be woken when the peer's word is raised: by its bell, or by the word in `futexes`. `false`: the gate of
/// the next batch is open already.
fn closed_gate(copying: &Copying, wake: &Arc<dyn Wake>, futexes: &mut Vec<SharedFutex>) -> bool {
    let link = &copying.open.link;
    let gate = copying.gate().unwrap_or(0);
    let seen = link.watch(wake);
    if let Some(futex) = link.futex(seen)
        && futexes.iter().all(|other| other.at != futex.at)
    {
        futexes.push(futex);
    }
    seen < gate && !link.is_gone() && !copying.fetches.is_news()
}
