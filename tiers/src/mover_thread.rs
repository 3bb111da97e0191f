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
use transport::{BoundedThread, Failure, Late, TransferId};

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
    Ended(TransferId, Ended),
    Close,
}

/// How what the tier's store was asked for ended.
pub(super) enum Ended {
    Done,
    /// What was to be written is there, for another worker had written it.
    Existed,
    /// What was to be read is not there.
    Missing,
    /// What others wrote.
    Listed(Vec<String>),
    Cancelled,
    Failed(StoreError),
}

/// A move, and when it was asked for.
pub(super) struct Move {
    pub(super) what: What,
    at: Instant,
}

pub(super) enum What {
    Write(TierWrite),
    Read(SeqKey, TierRead),
    /// A read for a prompt that waits for room.
    Lift(SeqKey, TierLift),
    /// The write of what came so.
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
        match &self.what {
            What::Write(write) => write.place,
            What::Read(_, read) => read.place,
            What::Lift(_, lift) => lift.from,
            What::Land(_, lift, _) => lift.to,
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self.what {
            What::Write(_) | What::Land(..) => Direction::Write,
            What::Read(..) | What::Lift(..) => Direction::Read,
        }
    }

    /// What is moved.
    pub(super) fn record(&self) -> (GroupId, BlockHash) {
        let hash = match &self.what {
            What::Write(write) => write.hash,
            What::Read(_, read) => read.hash,
            What::Lift(_, lift) | What::Land(_, lift, _) => lift.hash,
        };
        (self.place().slot.group, hash)
    }

    /// Whether it is a read of one of these loads, or lifts for one of these prompts.
    pub(super) fn is_read_of(&self, keys: &BTreeSet<SeqKey>) -> bool {
        matches!(&self.what, What::Read(key, _) | What::Lift(key, _) if keys.contains(key))
    }

    /// Its end, where nothing was moved.
    pub(super) fn failed(&self) -> TierEvent {
        self.end(WriteEnd::Failed, ReadEnd::Unread)
    }

    /// Its end, where it is a lift and the record came.
    pub(super) fn came(&self, record: Record) -> TierEvent {
        let mut end = self.end(WriteEnd::Failed, ReadEnd::Good);
        if let TierEvent::Lifted { record: came, .. } = &mut end {
            *came = Some(record);
        }
        end
    }

    /// Its end, which is that of a write or that of a read.
    pub(super) fn end(&self, wrote: WriteEnd, read: ReadEnd) -> TierEvent {
        let elapsed = now().duration_since(self.at);
        match self.what {
            What::Write(write) => TierEvent::Wrote { write, end: wrote, elapsed },
            What::Read(key, of) => TierEvent::Read { key, read: of, end: read, elapsed },
            What::Lift(prompt, lift) => TierEvent::Lifted { prompt, lift, end: read, record: None, elapsed },
            What::Land(prompt, lift, _) => {
                TierEvent::Landed { prompt, lift, there: wrote == WriteEnd::Written, elapsed }
            }
        }
    }
}

/// Moves that have not begun.
#[derive(Default)]
pub(super) struct Waiting {
    reads: VecDeque<Move>,
    /// What is lifted from here, or to here.
    lifts: VecDeque<Move>,
    writes: VecDeque<Move>,
}

impl Waiting {
    pub(super) fn push(&mut self, one: Move) {
        match one.what {
            What::Write(_) => self.writes.push_back(one),
            What::Read(..) => self.reads.push_back(one),
            What::Lift(..) | What::Land(..) => self.lifts.push_back(one),
        }
    }

    /// The next one: those that somebody waits for come first, and then what is lifted, if that is to be begun now.
    pub(super) fn pop(&mut self, lifts: bool) -> Option<Move> {
        let lift = |lifted: &mut VecDeque<Move>| if lifts { lifted.pop_front() } else { None };
        self.reads.pop_front().or_else(|| lift(&mut self.lifts)).or_else(|| self.writes.pop_front())
    }

    /// Takes the reads of these loads out, and of lifts for these prompts.
    pub(super) fn cancel(&mut self, keys: &BTreeSet<SeqKey>) -> Vec<Move> {
        let mut cancelled = Vec::new();
        // Threads ask before each record: they would else go through all that waits each time.
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

    /// Tells the worker of it, after all before it: at the next [`Events::flush`], or when so many wait.
    pub(super) fn tell(&mut self, event: TierEvent) {
        self.held.push(event);
        if self.held.len() == EVENTS_MAX {
            self.flush();
        }
    }

    /// Tells what waits. Due before the thread sleeps.
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
        self.order(Order::Move(Move { what: What::Write(write), at: now() }));
    }

    fn read(&mut self, key: SeqKey, read: TierRead) {
        self.order(Order::Move(Move { what: What::Read(key, read), at: now() }));
    }

    fn lift(&mut self, prompt: SeqKey, lift: TierLift) {
        self.order(Order::Move(Move { what: What::Lift(prompt, lift), at: now() }));
    }

    fn land(&mut self, prompt: SeqKey, lift: TierLift, record: Record) {
        self.order(Order::Move(Move { what: What::Land(prompt, lift, record), at: now() }));
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
            |n| What::Write(TierWrite { place: place(n), block: block(0, n), hash: hash(n as u8), tenant: TENANT });
        let read =
            |n| What::Read(key(), TierRead { place: place(n), block: block(0, n), hash: hash(n as u8), number: n });
        let lift = |n| What::Lift(key(), TierLift { from: place(n), to: place(9), hash: hash(n as u8) });
        let mut waiting = Waiting::default();
        for what in [write(0), lift(1), write(2), read(3), lift(4), read(5)] {
            waiting.push(Move { what, at: now() });
        }
        let mut next = |lifts| waiting.pop(lifts).map(|one| one.place().slot.slot);
        let order: Vec<_> = [true, true, true, false, true, true, true].into_iter().map(&mut next).collect();
        assert_eq!(order, [Some(3), Some(5), Some(1), Some(0), Some(4), Some(2), None]);
    }

    #[test]
    fn what_is_cancelled_is_taken_out_and_nothing_else() {
        let place = |n| Place { tier: Tier::Disk, slot: slot(0, n) };
        let other = SeqKey { epoch: domain::Epoch(9), ..key() };
        let lift = |key, n| What::Lift(key, TierLift { from: place(n), to: place(9), hash: hash(n as u8) });
        let mut waiting = Waiting::default();
        for what in [lift(other, 0), lift(key(), 1), lift(other, 2)] {
            waiting.push(Move { what, at: now() });
        }
        let cancelled = waiting.cancel(&BTreeSet::from([other]));
        assert_eq!(cancelled.iter().map(|one| one.place().slot.slot).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(waiting.pop(true).map(|one| one.place().slot.slot), Some(1));
        assert!(waiting.pop(true).is_none());
    }
}
