//! What all movers have in common: the worker's end of the thread of a tier, the moves that wait in it, and how
//! their ends get back.

use crate::mover::{TierEvent, TierMover};
use crate::records::Record;
use crate::store_error::StoreError;
use domain::{BlockHash, GroupId, SeqKey};
use kv_manager::tiers::{Place, ReadEnd, TierLift, TierRead, TierWrite, WriteEnd};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use transport::{BoundedThread, Failure, Late, ListedObject, TransferId};

/// Events that are told together while there is more to do: to wake the step loop for each costs as much as half a
/// copy.
const EVENTS_MAX: usize = 16;

/// How long a tier that is dropped waits for its thread: longer than a mover in it waits for its own, unless
/// something hangs, such as a disk that a log is written to.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(15);

/// What a tier's thread is asked for. Reads are no more than the device has blocks, writes and lifts no more than
/// the core has under way at once, ends no more than what was begun: the queue is bounded by them.
pub(super) enum Order {
    Move(Move),
    Cancel(SeqKey),
    /// A prompt needs these records, which nobody here knows of.
    LookUp(SeqKey, Vec<BlockHash>),
    Ended(TransferId, StoreOutcome),
    Close,
}

/// How something that the tier's store was asked for has ended.
pub(super) enum StoreOutcome {
    Done,
    /// The record was there already: another worker wrote it.
    Existed,
    /// The record is not there.
    Missing,
    /// What is there.
    Listed(Vec<ListedObject>),
    Cancelled,
    Failed(StoreError),
}

/// A move of a record.
pub(super) struct Move {
    pub(super) kind: MoveKind,
    /// When the worker asked for it.
    at: Instant,
}

/// What a move does.
pub(super) enum MoveKind {
    Write(TierWrite),
    Read(SeqKey, TierRead),
    /// The read of a lift.
    Lift(SeqKey, TierLift),
    /// The write of a lift.
    Land(SeqKey, TierLift, Record),
}

/// Which way a move goes.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Read,
    Write,
}

#[expect(
    clippy::disallowed_methods,
    reason = "moves are timed, and pauses of a store that is away; no core is told of it"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

impl Move {
    pub(super) fn place(&self) -> Place {
        match &self.kind {
            MoveKind::Write(write) => write.place,
            MoveKind::Read(_, read) => read.place,
            MoveKind::Lift(_, lift) => lift.from,
            MoveKind::Land(_, lift, _) => lift.to,
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self.kind {
            MoveKind::Write(_) | MoveKind::Land(..) => Direction::Write,
            MoveKind::Read(..) | MoveKind::Lift(..) => Direction::Read,
        }
    }

    /// Returns which record it moves.
    pub(super) fn record(&self) -> (GroupId, BlockHash) {
        let hash = match &self.kind {
            MoveKind::Write(write) => write.hash,
            MoveKind::Read(_, read) => read.hash,
            MoveKind::Lift(_, lift) | MoveKind::Land(_, lift, _) => lift.hash,
        };
        (self.place().slot.group, hash)
    }

    /// Returns whether it is a read of one of these loads, or of a lift for one of these prompts.
    pub(super) fn is_read_of(&self, keys: &BTreeSet<SeqKey>) -> bool {
        matches!(&self.kind, MoveKind::Read(key, _) | MoveKind::Lift(key, _) if keys.contains(key))
    }

    /// Returns its event if nothing was moved.
    pub(super) fn failed(&self) -> TierEvent {
        self.end(WriteEnd::Failed, ReadEnd::Unread)
    }

    /// Returns its event if it is the read of a lift that delivered the record.
    pub(super) fn delivered(&self, record: Record) -> TierEvent {
        let mut end = self.end(WriteEnd::Failed, ReadEnd::Good);
        if let TierEvent::Lifted { record: came, .. } = &mut end {
            *came = Some(record);
        }
        end
    }

    /// Returns its event: with `wrote` if it is a write, with `read` if it is a read.
    pub(super) fn end(&self, wrote: WriteEnd, read: ReadEnd) -> TierEvent {
        let elapsed = now().duration_since(self.at);
        match self.kind {
            MoveKind::Write(write) => TierEvent::Wrote { write, end: wrote, elapsed },
            MoveKind::Read(key, of) => TierEvent::Read { key, read: of, end: read, elapsed },
            MoveKind::Lift(prompt, lift) => TierEvent::Lifted { prompt, lift, end: read, record: None, elapsed },
            MoveKind::Land(prompt, lift, _) => {
                TierEvent::Landed { prompt, lift, there: wrote == WriteEnd::Written, elapsed }
            }
        }
    }
}

/// Moves that have not begun.
#[derive(Default)]
pub(super) struct Waiting {
    reads: VecDeque<Move>,
    /// Both reads and writes of lifts.
    lifts: VecDeque<Move>,
    writes: VecDeque<Move>,
}

impl Waiting {
    pub(super) fn push(&mut self, one: Move) {
        match one.kind {
            MoveKind::Write(_) => self.writes.push_back(one),
            MoveKind::Read(..) => self.reads.push_back(one),
            MoveKind::Lift(..) | MoveKind::Land(..) => self.lifts.push_back(one),
        }
    }

    /// Takes the next move: reads of loads come first, then moves of lifts if `lifts`, then writes.
    pub(super) fn pop(&mut self, lifts: bool) -> Option<Move> {
        let lift = |lifted: &mut VecDeque<Move>| if lifts { lifted.pop_front() } else { None };
        self.reads.pop_front().or_else(|| lift(&mut self.lifts)).or_else(|| self.writes.pop_front())
    }

    /// Removes the reads of these loads, and of lifts for these prompts.
    pub(super) fn cancel(&mut self, keys: &BTreeSet<SeqKey>) -> Vec<Move> {
        let mut cancelled = Vec::new();
        // Threads call this before each record, mostly without keys. Then the queues are left alone.
        if keys.is_empty() {
            return cancelled;
        }
        for queue in [&mut self.reads, &mut self.lifts] {
            let (of, rest): (Vec<_>, Vec<_>) = std::mem::take(queue).into_iter().partition(|one| one.is_read_of(keys));
            cancelled.extend(of);
            *queue = VecDeque::from(rest);
        }
        cancelled
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The way of events to the worker.
pub(super) struct Events {
    sink: Box<dyn Fn(TierEvent) + Send>,
    held: Vec<TierEvent>,
}

impl Events {
    pub(super) fn new(sink: Box<dyn Fn(TierEvent) + Send>) -> Self {
        Self { sink, held: Vec::with_capacity(EVENTS_MAX) }
    }

    /// Reports an event to the worker, after all earlier ones: at the next [`Events::flush`], or when
    /// [`EVENTS_MAX`] wait.
    pub(super) fn tell(&mut self, event: TierEvent) {
        self.held.push(event);
        if self.held.len() == EVENTS_MAX {
            self.flush();
        }
    }

    /// Reports all events that wait. Called before the thread sleeps.
    pub(super) fn flush(&mut self) {
        self.held.drain(..).for_each(&self.sink);
    }
}

/// The worker's end of a tier's thread. Dropping it ends what is under way.
pub(super) struct MoverThread {
    name: String,
    orders: Sender<Order>,
    thread: Option<BoundedThread>,
}

/// The way to a thread that is to be started.
pub(super) fn orders() -> (Sender<Order>, Receiver<Order>) {
    channel()
}

impl MoverThread {
    /// Starts the thread, which returns once it got [`Order::Close`] and nothing is under way any more. A panic of
    /// it is reported. Errors: of the system.
    pub(super) fn start(
        name: String,
        failure: &Failure,
        orders: Sender<Order>,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let thread = BoundedThread::spawn(name.clone(), failure, body)?;
        Ok(Self { name, orders, thread: Some(thread) })
    }

    fn order(&self, order: Order) {
        // The thread outlives this value, unless it panicked, which was reported.
        let _ = self.orders.send(order);
    }
}

impl TierMover for MoverThread {
    fn write(&mut self, write: TierWrite) {
        self.order(Order::Move(Move { kind: MoveKind::Write(write), at: now() }));
    }

    fn read(&mut self, key: SeqKey, read: TierRead) {
        self.order(Order::Move(Move { kind: MoveKind::Read(key, read), at: now() }));
    }

    fn lift(&mut self, prompt: SeqKey, lift: TierLift) {
        self.order(Order::Move(Move { kind: MoveKind::Lift(prompt, lift), at: now() }));
    }

    fn land(&mut self, prompt: SeqKey, lift: TierLift, record: Record) {
        self.order(Order::Move(Move { kind: MoveKind::Land(prompt, lift, record), at: now() }));
    }

    fn cancel(&mut self, key: SeqKey) {
        self.order(Order::Cancel(key));
    }

    fn look_up(&mut self, prompt: SeqKey, chain: &[BlockHash]) {
        self.order(Order::LookUp(prompt, chain.to_vec()));
    }
}

impl Drop for MoverThread {
    fn drop(&mut self) {
        self.order(Order::Close);
        let thread = &self.name;
        if let Some(Err(Late)) = self.thread.take().map(|thread| thread.join(CLOSE_WAIT_MAX)) {
            tracing::error!(thread, "the thread of a tier hangs: it is left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{TENANT, block, hash, key, slot};
    use kv_manager::tiers::Tier;

    #[test]
    fn what_somebody_waits_for_comes_first_then_what_is_lifted_and_then_every_write() {
        let place = |n| Place { tier: Tier::Disk, slot: slot(0, n) };
        let write =
            |n| MoveKind::Write(TierWrite { place: place(n), block: block(0, n), hash: hash(n as u8), tenant: TENANT });
        let read =
            |n| MoveKind::Read(key(), TierRead { place: place(n), block: block(0, n), hash: hash(n as u8), number: n });
        let lift = |n| MoveKind::Lift(key(), TierLift { from: place(n), to: place(9), hash: hash(n as u8) });
        let mut waiting = Waiting::default();
        for kind in [write(0), lift(1), write(2), read(3), lift(4), read(5)] {
            waiting.push(Move { kind, at: now() });
        }
        let mut next = |lifts| waiting.pop(lifts).map(|one| one.place().slot.slot);
        let order: Vec<_> = [true, true, true, false, true, true, true].into_iter().map(&mut next).collect();
        assert_eq!(order, [Some(3), Some(5), Some(1), Some(0), Some(4), Some(2), None]);
    }

    #[test]
    fn what_is_cancelled_is_taken_out_and_nothing_else() {
        let place = |n| Place { tier: Tier::Disk, slot: slot(0, n) };
        let other = SeqKey { epoch: domain::Epoch(9), ..key() };
        let lift = |key, n| MoveKind::Lift(key, TierLift { from: place(n), to: place(9), hash: hash(n as u8) });
        let mut waiting = Waiting::default();
        for kind in [lift(other, 0), lift(key(), 1), lift(other, 2)] {
            waiting.push(Move { kind, at: now() });
        }
        let cancelled = waiting.cancel(&BTreeSet::from([other]));
        assert_eq!(cancelled.iter().map(|one| one.place().slot.slot).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(waiting.pop(true).map(|one| one.place().slot.slot), Some(1));
        assert!(waiting.pop(true).is_none());
    }
}
