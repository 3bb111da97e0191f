//! The thread of a tier whose records move through frames: memory that a store's mover knows, since a block need
//! not be aligned as the store wants it, and what is read is verified before it gets into a block.
//!
//! What the store does is never relied on: a record that is not what it should be is told so, and a store that
//! fails is not asked until it answers again, or never, as the [`Store`] says.

use crate::mover::TierEvent;
use crate::mover_thread::{Direction, Ended, Events, Move, Order, Waiting, What};
use crate::records::{Records, Spot};
use crate::store_error::StoreError;
use domain::{BlockHash, GroupId, SeqKey};
use kv_manager::tiers::header::HEADER;
use kv_manager::tiers::{ReadEnd, Tier, TierWrite, WriteEnd};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use transport::{Memory, TransferId};

/// Memory of all frames, about.
const FRAMES_BYTES: usize = 32 << 20;
/// Frames, at least and at most: records under way.
const FRAMES_MIN: usize = 4;
pub(super) const FRAMES_MAX: usize = 64;

/// How many frames there are.
pub(super) fn frames(frame_bytes: usize) -> usize {
    (FRAMES_BYTES / frame_bytes).clamp(FRAMES_MIN, FRAMES_MAX)
}

/// What keeps the records of a tier. What it is asked for ends with an [`Order::Ended`].
pub(super) trait Store: Send {
    /// Which tier it is.
    const TIER: Tier;
    /// Where in a frame the record begins, behind the header.
    const RECORD_AT: usize;
    /// So many failures to read one after the other, or to write, and the tier is off.
    const FAILURES_MAX: u32;
    /// So many records that could not be read are remembered. That they fail again says nothing of the store, and
    /// that they are there is no use before the next look. 0: none fails again, for none is found again where it
    /// was.
    const UNREADABLE_MAX: usize;
    /// So long is waited for one more of the moves that are under way to end, when the tier is closed.
    const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

    /// Begins to move a frame, whose bytes begin at `at` of the frames' memory; a record there has `len` bytes,
    /// its header and what is between them included. Errors: why it did not begin.
    fn begin(&mut self, what: &What, at: u64, len: usize) -> Result<TransferId, StoreError>;

    /// What was begun shall end soon.
    fn cancel(&mut self, id: TransferId);

    /// A record was written. Errors: it will not be found there.
    fn wrote(&mut self, write: &TierWrite) -> Result<(), StoreError>;

    /// What is there is not the record of the group that it should be.
    fn wrong(&mut self, group: GroupId, hash: BlockHash);

    /// A prompt needs these records, which nobody here knows of: they may be looked for, for others wrote them perhaps.
    fn look_up(&mut self, _prompt: SeqKey, _chain: Vec<BlockHash>) {}

    /// What was begun beside moves and looks ended: what the worker is to be told of it.
    fn chore_ended(&mut self, _id: TransferId, _end: Ended) -> Option<TierEvent> {
        None
    }

    /// Begins to look for what others wrote, where that is due. An answer is also the sign that a store is there again.
    fn look(&mut self) -> Option<Result<TransferId, StoreError>> {
        None
    }

    /// What others wrote, by what a look brought: nothing, if it failed.
    fn found(&mut self, _keys: Vec<String>) -> Vec<(GroupId, BlockHash)> {
        Vec::new()
    }

    /// The tier is off, for the store failed; or it is off still, for a look failed.
    fn failed(&mut self) {}

    /// How long until a look is due. `None`: none will be, unless something ends first.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// The thread.
pub(super) struct FramedStore<S> {
    pub(super) name: String,
    pub(super) records: Records,
    pub(super) events: Events,
    pub(super) inbox: Receiver<Order>,
    pub(super) store: S,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) frame_bytes: usize,
    state: State,
}

#[derive(Default)]
struct State {
    /// Frames that nobody uses.
    free: Vec<usize>,
    waiting: Waiting,
    under_way: HashMap<TransferId, UnderWay>,
    /// What the store said of them, and nobody looked at yet: no more than are under way.
    ended: VecDeque<(TransferId, Ended)>,
    look: Option<TransferId>,
    /// Failures of the store to read, and to write, one after the other: one that can still do one of them is no use.
    failures: [u32; 2],
    /// Records that could not be read though the store did not fail, the last one last.
    unreadable: VecDeque<(GroupId, BlockHash)>,
    off: bool,
    /// Nothing more is begun.
    closed: bool,
}

struct UnderWay {
    one: Move,
    frame: usize,
    /// Its end was told, and what is read into the frame is nobody's.
    given_up: bool,
}

impl<S: Store> FramedStore<S> {
    /// A thread's body, with all frames that `memory` has room for.
    pub(super) fn new(
        name: String,
        records: Records,
        sink: Box<dyn Fn(TierEvent) + Send>,
        inbox: Receiver<Order>,
        store: S,
        memory: Arc<dyn Memory>,
        frame_bytes: usize,
    ) -> Self {
        let state = State { free: (0..memory.len() / frame_bytes).rev().collect(), ..State::default() };
        Self { name, records, events: Events::new(sink), inbox, store, memory, frame_bytes, state }
    }

    /// Returns once the tier is dropped and nothing is under way any more, or what is has taken too long: the
    /// store keeps the frames mapped for as long as anybody may write them.
    pub(super) fn run(mut self) {
        while !self.state.closed || !self.state.under_way.is_empty() {
            let patience = if self.state.closed { Some(S::CLOSE_WAIT_MAX) } else { self.store.patience() };
            let order = match patience {
                Some(patience) => self.inbox.recv_timeout(patience),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let mut order = match order {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) if self.state.closed => {
                    let moves = self.state.under_way.len();
                    tracing::warn!(tier = self.name, moves, "the tier hangs: it is closed with moves under way");
                    return;
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            loop {
                self.take_orders(order);
                // Before each copy, since the store would else have nothing to do while many ends are worked off.
                self.begin();
                let Some((id, end)) = self.state.ended.pop_front() else { break };
                self.ended(id, end);
                order = self.inbox.try_recv().ok();
            }
            if !self.state.closed {
                self.look();
            }
            self.events.flush();
        }
    }

    /// Takes all orders that are there, of which this is the first.
    fn take_orders(&mut self, mut order: Option<Order>) {
        let mut cancelled = BTreeSet::new();
        while let Some(one) = order {
            match one {
                Order::Move(one) => self.state.waiting.push(one),
                Order::Cancel(key) => drop(cancelled.insert(key)),
                Order::LookUp(prompt, chain) if !self.state.off && !self.state.closed => {
                    self.store.look_up(prompt, chain)
                }
                Order::LookUp(..) => {}
                Order::Ended(id, end) => self.state.ended.push_back((id, end)),
                Order::Close => {
                    self.state.closed = true;
                    self.state.under_way.keys().for_each(|&id| self.store.cancel(id));
                    self.state.waiting.clear();
                }
            }
            order = self.inbox.try_recv().ok();
        }
        self.cancel(&cancelled);
    }

    /// Begins moves while frames are free: lifts while half of them are, so that whoever waits for a record finds one.
    fn begin(&mut self) {
        let half = self.memory.len() / self.frame_bytes / 2;
        while let Some(&frame) = self.state.free.last() {
            let Some(one) = self.state.waiting.pop(self.state.free.len() > half) else { return };
            if self.state.off {
                self.events.tell(one.failed());
                continue;
            }
            if let What::Write(write) = &one.what {
                // SAFETY: the frame has room for the record of any group, and is nobody else's now. The core keeps
                // the block as it is until this write has ended.
                unsafe { self.records.put(write, self.spot(frame)) };
            }
            let len = S::RECORD_AT + self.records.len(one.place().slot.group);
            match self.store.begin(&one.what, (frame * self.frame_bytes) as u64, len) {
                Ok(id) => {
                    self.state.free.pop();
                    self.state.under_way.insert(id, UnderWay { one, frame, given_up: false });
                }
                Err(reason) => {
                    self.failed(one.direction(), &reason);
                    self.events.tell(one.failed());
                }
            }
        }
    }

    /// Begins to look for what others wrote, where that is due.
    fn look(&mut self) {
        match self.store.look() {
            None => {}
            Some(Ok(id)) => self.state.look = Some(id),
            Some(Err(reason)) => self.look_failed(&reason),
        }
    }

    fn ended(&mut self, id: TransferId, end: Ended) {
        if self.state.look == Some(id) {
            self.state.look = None;
            return self.looked(end);
        }
        let Some(UnderWay { one, frame, given_up }) = self.state.under_way.remove(&id) else {
            if let Some(mut told) = self.store.chore_ended(id, end) {
                if let TierEvent::Found { records, .. } = &mut told {
                    records.retain(|record| !self.state.unreadable.contains(record));
                }
                self.events.tell(told);
            }
            return;
        };
        self.state.free.push(frame);
        let record = one.record();
        if matches!(end, Ended::Done | Ended::Missing) {
            self.state.unreadable.retain(|unreadable| *unreadable != record);
        }
        if given_up {
            return self.settled(&one, end);
        }
        let told = match end {
            Ended::Done => self.moved(&one, frame),
            // It would be read in vain again.
            Ended::Existed if self.state.unreadable.contains(&record) => Ok(one.failed()),
            Ended::Existed => Ok(one.end(WriteEnd::Existed, ReadEnd::Unread)),
            Ended::Missing => Ok(one.end(WriteEnd::Failed, ReadEnd::Missing)),
            // It says nothing of the store.
            Ended::Cancelled | Ended::Listed(_) => return self.events.tell(one.failed()),
            Ended::Failed(reason) => Err(reason),
        };
        match told {
            Ok(told) => {
                self.state.failures[one.direction() as usize] = 0;
                self.events.tell(told);
            }
            Err(reason) => {
                self.not_moved(&one, &reason);
                // What lies in a store that fails is as good as before; otherwise it is the record's fault.
                let unread = if self.state.off { ReadEnd::Unread } else { ReadEnd::Failed };
                self.events.tell(one.end(WriteEnd::Failed, unread));
            }
        }
    }

    /// The store did not do its part.
    fn not_moved(&mut self, one: &Move, reason: &StoreError) {
        let unreadable = &mut self.state.unreadable;
        if matches!(one.direction(), Direction::Read) && !self.state.off {
            let record = one.record();
            if unreadable.contains(&record) {
                tracing::warn!(tier = self.name, ?record, %reason, "a record still cannot be read");
                return;
            }
            unreadable.push_back(record);
            if unreadable.len() > S::UNREADABLE_MAX {
                unreadable.pop_front();
            }
        }
        self.failed(one.direction(), reason);
    }

    /// A read that was given up before ended.
    fn settled(&mut self, one: &Move, end: Ended) {
        let moved = matches!(end, Ended::Done | Ended::Missing);
        if moved {
            self.state.failures[Direction::Read as usize] = 0;
        } else if let Ended::Failed(reason) = end {
            self.not_moved(one, &reason);
        }
        self.events.tell(TierEvent::Settled { tier: S::TIER, moved });
    }

    /// The store did its part. Errors: the record will not be found.
    fn moved(&mut self, one: &Move, frame: usize) -> Result<TierEvent, StoreError> {
        let spot = self.spot(frame);
        let (hash, told) = match &one.what {
            What::Write(write) => {
                self.store.wrote(write)?;
                return Ok(one.end(WriteEnd::Written, ReadEnd::Unread));
            }
            // Records come to the host tier alone.
            What::Land(..) => return Ok(one.failed()),
            // SAFETY: the frame was read into and is nobody else's now; the core keeps the block for this read
            // until it has ended.
            What::Read(_, read) => (read.hash, unsafe { self.records.take(read, spot) }.map(|()| None)),
            // SAFETY: the frame was read into and is nobody else's now.
            What::Lift(_, lift) => (lift.hash, unsafe { self.records.lift(lift, spot) }.map(Some)),
        };
        Ok(match told {
            Ok(None) => one.end(WriteEnd::Failed, ReadEnd::Good),
            Ok(Some(record)) => one.came(record),
            Err(why) => {
                let place = one.place();
                tracing::warn!(tier = self.name, ?place, %why, "a record is wrong; it is not used");
                self.store.wrong(place.slot.group, hash);
                one.end(WriteEnd::Failed, ReadEnd::Wrong)
            }
        })
    }

    fn looked(&mut self, end: Ended) {
        let keys = match end {
            Ended::Listed(keys) => keys,
            Ended::Failed(reason) => return self.look_failed(&reason),
            _ => return self.look_failed(&StoreError::NoList),
        };
        self.state.failures = [0; 2];
        if std::mem::take(&mut self.state.off) {
            self.events.tell(TierEvent::On { tier: S::TIER });
        }
        let records = self.store.found(keys);
        if !records.is_empty() {
            self.events.tell(TierEvent::Learned { tier: S::TIER, records });
        }
    }

    fn look_failed(&mut self, reason: &StoreError) {
        self.store.found(Vec::new());
        if self.state.off {
            tracing::debug!(tier = self.name, %reason, "the store of a tier that is off fails still");
            self.store.failed();
        } else {
            // That is the fault of no record.
            self.turn_off(format!("it cannot be listed: {reason}"));
        }
    }

    /// The store failed once more.
    fn failed(&mut self, direction: Direction, reason: &StoreError) {
        if self.state.off {
            return;
        }
        let failures = &mut self.state.failures[direction as usize];
        *failures += 1;
        tracing::warn!(tier = self.name, %reason, failures, "the store of a tier failed");
        if *failures >= S::FAILURES_MAX {
            let reason = format!("{failures} failures one after the other, the last: {reason}");
            self.turn_off(reason);
        }
    }

    fn turn_off(&mut self, reason: String) {
        self.state.off = true;
        self.store.failed();
        self.events.tell(TierEvent::Off { tier: S::TIER, reason });
    }

    /// Ends the reads of these loads. Those under way are given up: a store that hangs keeps frames, and no blocks.
    fn cancel(&mut self, keys: &BTreeSet<SeqKey>) {
        if keys.is_empty() {
            return;
        }
        let cancelled = self.state.waiting.cancel(keys);
        cancelled.iter().for_each(|one| self.events.tell(one.failed()));
        let reads = self.state.under_way.iter_mut().filter(|(_, read)| !read.given_up && read.one.is_read_of(keys));
        for (&id, read) in reads {
            read.given_up = true;
            self.events.tell(read.one.end(WriteEnd::Failed, ReadEnd::Abandoned));
            self.store.cancel(id);
        }
    }

    fn spot(&self, frame: usize) -> Spot {
        const { assert!(HEADER <= S::RECORD_AT, "a header fits before its record") };
        debug_assert!(self.frame_bytes >= S::RECORD_AT + self.records.len_max());
        // SAFETY: the memory has so many frames, of so many bytes.
        unsafe {
            let header = self.memory.as_ptr().add(frame * self.frame_bytes);
            Spot { header, record: header.add(S::RECORD_AT) }
        }
    }
}

#[cfg(test)]
mod tests;
