//! The thread of a tier whose records move through frames. A frame is memory that the mover of a store knows: a block
//! need not be aligned as the store wants it, and a record is verified before it reaches a block.
//!
//! Nothing relies on the store. A record that is wrong is reported as wrong. A store that fails is not asked again
//! until a listing succeeds, or never, as the [`Store`] says.

use crate::mover::TierEvent;
use crate::mover_thread::{Direction, Events, Move, MoveKind, Order, StoreOutcome, Waiting};
use crate::records::{Records, Spot, host};
use crate::store_error::StoreError;
use domain::{BlockHash, GroupId, SeqKey};
use kv_manager::tiers::header::HEADER;
use kv_manager::tiers::{ReadEnd, Tier, TierWrite, WriteEnd};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use threads::Doing;
use transport::{Memory, TransferId};

/// Memory of all frames, about.
const FRAMES_BYTES: usize = 32 << 20;
/// Frames at least.
const FRAMES_MIN: usize = 4;
/// Frames at most. Each move in progress has one.
pub(super) const FRAMES_MAX: usize = 64;

/// Returns the number of frames of so many bytes.
pub(super) fn frames(frame_bytes: usize) -> usize {
    (FRAMES_BYTES / frame_bytes).clamp(FRAMES_MIN, FRAMES_MAX)
}

/// What keeps the records of a tier. Whatever it begins ends with an [`Order::Ended`].
pub(super) trait Store: Send {
    /// The tier that it keeps.
    const TIER: Tier;
    /// Offset in a frame at which the record begins, behind the header.
    const RECORD_AT: usize;
    /// After so many failed reads in a row, or failed writes, the tier is off.
    const FAILURES_MAX: u32;
    /// How many records that could not be read are remembered. Another failure of these is not the store's fault, and
    /// they are not reported as found. 0: no record can be found again in its place.
    const UNREADABLE_MAX: usize;
    /// How long a tier that is closed waits for one more of its moves to end.
    const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

    /// Begins to move a frame that begins at `at` of the frames' memory. The first `len` bytes of the frame are moved:
    /// header, record and what is between them.
    fn begin(&mut self, kind: &MoveKind, at: u64, len: usize) -> Result<TransferId, StoreError>;

    /// Makes something that was begun end soon.
    fn cancel(&mut self, id: TransferId);

    /// Notes that a record was written. Errors: the record will not be found there.
    fn note_written(&mut self, write: &TierWrite) -> Result<(), StoreError>;

    /// Discards what lies in the place of a record and is not that record.
    fn discard_wrong(&mut self, group: GroupId, hash: BlockHash);

    /// Looks for records that a prompt needs and no index of the worker has. Other workers may have written them.
    fn look_up(&mut self, _prompt: SeqKey, _chain: Vec<BlockHash>) {}

    /// Handles the end of something that is neither a move nor a listing. Returns what the worker should know.
    fn on_chore_ended(&mut self, _id: TransferId, _outcome: StoreOutcome) -> Option<TierEvent> {
        None
    }

    /// Begins to list what other workers wrote, if it is time. An answer also shows that a store works again.
    fn begin_listing(&mut self) -> Option<Result<TransferId, StoreError>> {
        None
    }

    /// Returns the records that a listing names. No keys: it failed, or there are none.
    fn on_listed(&mut self, _keys: Vec<String>) -> Vec<(GroupId, BlockHash)> {
        Vec::new()
    }

    /// Notes that the tier is off, or still off after another failed listing.
    fn on_off(&mut self) {}

    /// Returns the time until the next listing. `None`: none begins before something else has ended.
    fn next_listing_in(&self) -> Option<Duration> {
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
    /// Frames without a move.
    free: Vec<usize>,
    waiting: Waiting,
    in_progress: HashMap<TransferId, MoveInProgress>,
    /// Ends that were not handled yet: no more than there is in progress.
    ended: VecDeque<(TransferId, StoreOutcome)>,
    /// The listing in progress.
    listing: Option<TransferId>,
    /// Failed reads in a row, and failed writes. A store that can do only one of both is of no use.
    failures: [u32; 2],
    /// Records that could not be read though the store did not fail, the last one last.
    unreadable: VecDeque<(GroupId, BlockHash)>,
    off: bool,
    /// Nothing more is begun.
    closed: bool,
}

struct MoveInProgress {
    one: Move,
    frame: usize,
    /// Its end was reported. What is still read into the frame is thrown away.
    abandoned: bool,
}

impl<S: Store> FramedStore<S> {
    /// Makes a thread's body, with all frames that `memory` has room for.
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

    /// Runs until the tier is dropped and all moves have ended, or take too long. The store keeps frames mapped as long
    /// as a device may write to them.
    pub(super) fn run(mut self) {
        while !self.state.closed || !self.state.in_progress.is_empty() {
            let patience = if self.state.closed { Some(S::CLOSE_WAIT_MAX) } else { self.store.next_listing_in() };
            let order = threads::during(Doing::WaitsForMoves, || match patience {
                Some(patience) => self.inbox.recv_timeout(patience),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            });
            let mut order = match order {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) if self.state.closed => {
                    let moves = self.state.in_progress.len();
                    tracing::warn!(tier = self.name, moves, "the tier hangs: it is closed with moves under way");
                    return;
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            loop {
                self.take_orders(order);
                // Before each copy, so that the store has something to do while many ends are handled.
                self.begin_moves();
                let Some((id, outcome)) = self.state.ended.pop_front() else { break };
                self.on_ended(id, outcome);
                order = self.inbox.try_recv().ok();
            }
            if !self.state.closed {
                self.begin_listing();
            }
            self.events.flush();
        }
    }

    /// Takes all orders that have arrived, `order` first.
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
                Order::Ended(id, outcome) => self.state.ended.push_back((id, outcome)),
                Order::Close => {
                    self.state.closed = true;
                    self.state.in_progress.keys().for_each(|&id| self.store.cancel(id));
                    self.state.waiting.clear();
                }
            }
            order = self.inbox.try_recv().ok();
        }
        self.cancel(&cancelled);
    }

    /// Begins moves while frames are free. Lifts begin only while half of them are, so that reads of loads find one.
    fn begin_moves(&mut self) {
        let half = self.memory.len() / self.frame_bytes / 2;
        while let Some(&frame) = self.state.free.last() {
            let Some(one) = self.state.waiting.pop(self.state.free.len() > half) else { return };
            if self.state.off {
                self.events.tell(one.failed());
                continue;
            }
            if let MoveKind::Write(write) = &one.kind {
                // SAFETY: the frame has room for the record of any group, and no other move has it. The core keeps
                // the block as it is until this write has ended.
                if let Err(why) = unsafe { self.records.put(write, self.spot(frame)) } {
                    tracing::warn!(tier = self.name, place = ?write.place, %why, "a record is not written");
                    self.events.tell(one.failed());
                    continue;
                }
            }
            let len = S::RECORD_AT + self.records.len(one.place().slot.group);
            match self.store.begin(&one.kind, (frame * self.frame_bytes) as u64, len) {
                Ok(id) => {
                    self.state.free.pop();
                    self.state.in_progress.insert(id, MoveInProgress { one, frame, abandoned: false });
                }
                Err(reason) => {
                    self.count_failure(one.direction(), &reason);
                    self.events.tell(one.failed());
                }
            }
        }
    }

    /// Begins a listing, if it is time.
    fn begin_listing(&mut self) {
        match self.store.begin_listing() {
            None => {}
            Some(Ok(id)) => self.state.listing = Some(id),
            Some(Err(reason)) => self.on_listing_failed(&reason),
        }
    }

    fn on_ended(&mut self, id: TransferId, outcome: StoreOutcome) {
        if self.state.listing == Some(id) {
            self.state.listing = None;
            return self.on_listing_ended(outcome);
        }
        let Some(MoveInProgress { one, frame, abandoned }) = self.state.in_progress.remove(&id) else {
            if let Some(mut event) = self.store.on_chore_ended(id, outcome) {
                if let TierEvent::Found { records, .. } = &mut event {
                    records.retain(|record| !self.state.unreadable.contains(record));
                }
                self.events.tell(event);
            }
            return;
        };
        self.state.free.push(frame);
        let record = one.record();
        if matches!(outcome, StoreOutcome::Done | StoreOutcome::Missing) {
            self.state.unreadable.retain(|unreadable| *unreadable != record);
        }
        if abandoned {
            return self.on_abandoned_ended(&one, outcome);
        }
        let event = match outcome {
            StoreOutcome::Done => self.on_moved(&one, frame),
            // It could not be read from there.
            StoreOutcome::Existed if self.state.unreadable.contains(&record) => Ok(one.failed()),
            StoreOutcome::Existed => Ok(one.end(WriteEnd::Existed, ReadEnd::Unread)),
            StoreOutcome::Missing => Ok(one.end(WriteEnd::Failed, ReadEnd::Missing)),
            // That says nothing about the store.
            StoreOutcome::Cancelled | StoreOutcome::Listed(_) => return self.events.tell(one.failed()),
            StoreOutcome::Failed(reason) => Err(reason),
        };
        match event {
            Ok(event) => {
                self.state.failures[one.direction() as usize] = 0;
                self.events.tell(event);
            }
            Err(reason) => {
                self.on_move_failed(&one, &reason);
                // If the store fails, the record may still be good. Otherwise the record is at fault.
                let unread = if self.state.off { ReadEnd::Unread } else { ReadEnd::Failed };
                self.events.tell(one.end(WriteEnd::Failed, unread));
            }
        }
    }

    /// Notes that the store failed a move.
    fn on_move_failed(&mut self, one: &Move, reason: &StoreError) {
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
        self.count_failure(one.direction(), reason);
    }

    /// Handles the end of a read that was abandoned.
    fn on_abandoned_ended(&mut self, one: &Move, outcome: StoreOutcome) {
        let moved = matches!(outcome, StoreOutcome::Done | StoreOutcome::Missing);
        if moved {
            self.state.failures[Direction::Read as usize] = 0;
        } else if let StoreOutcome::Failed(reason) = outcome {
            self.on_move_failed(one, &reason);
        }
        self.events.tell(TierEvent::Settled { tier: S::TIER, moved });
    }

    /// Verifies what the store moved, and returns the event. Errors: the record will not be found.
    fn on_moved(&mut self, one: &Move, frame: usize) -> Result<TierEvent, StoreError> {
        let spot = self.spot(frame);
        let (hash, taken) = match &one.kind {
            MoveKind::Write(write) => {
                self.store.note_written(write)?;
                return Ok(one.end(WriteEnd::Written, ReadEnd::Unread));
            }
            // Only the host tier takes records that were lifted.
            MoveKind::Land(..) => return Ok(one.failed()),
            // SAFETY: the frame was read into and no other move has it; the core keeps the block for this read
            // until it has ended.
            MoveKind::Read(_, read) => (read.hash, unsafe { self.records.take(read, spot) }.map(|()| None)),
            // SAFETY: the frame was read into and no other move has it.
            MoveKind::Lift(_, lift) => (lift.hash, unsafe { self.records.lift(lift, spot) }.map(Some)),
        };
        Ok(match taken {
            Ok(None) => one.end(WriteEnd::Failed, ReadEnd::Good),
            Ok(Some(record)) => one.delivered(record),
            Err(why) => {
                let place = one.place();
                tracing::warn!(tier = self.name, ?place, %why, "a record is wrong; it is not used");
                self.store.discard_wrong(place.slot.group, hash);
                one.end(WriteEnd::Failed, ReadEnd::Wrong)
            }
        })
    }

    fn on_listing_ended(&mut self, outcome: StoreOutcome) {
        let keys = match outcome {
            StoreOutcome::Listed(objects) => objects.into_iter().map(|object| object.key).collect(),
            StoreOutcome::Failed(reason) => return self.on_listing_failed(&reason),
            _ => return self.on_listing_failed(&StoreError::NoList),
        };
        self.state.failures = [0; 2];
        if std::mem::take(&mut self.state.off) {
            self.events.tell(TierEvent::On { tier: S::TIER });
        }
        let records = self.store.on_listed(keys);
        if !records.is_empty() {
            self.events.tell(TierEvent::Learned { tier: S::TIER, records });
        }
    }

    fn on_listing_failed(&mut self, reason: &StoreError) {
        self.store.on_listed(Vec::new());
        if self.state.off {
            tracing::debug!(tier = self.name, %reason, "the store of a tier that is off fails still");
            self.store.on_off();
        } else {
            // No record is at fault.
            self.turn_off(format!("it cannot be listed: {reason}"));
        }
    }

    /// Counts a failure of the store. After too many in a row the tier is off.
    fn count_failure(&mut self, direction: Direction, reason: &StoreError) {
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
        self.store.on_off();
        self.events.tell(TierEvent::Off { tier: S::TIER, reason });
    }

    /// Ends the reads of these loads. Those in progress are abandoned: a store that hangs keeps frames, and no blocks.
    fn cancel(&mut self, keys: &BTreeSet<SeqKey>) {
        if keys.is_empty() {
            return;
        }
        let cancelled = self.state.waiting.cancel(keys);
        cancelled.iter().for_each(|one| self.events.tell(one.failed()));
        let reads = self.state.in_progress.iter_mut().filter(|(_, read)| !read.abandoned && read.one.is_read_of(keys));
        for (&id, read) in reads {
            read.abandoned = true;
            self.events.tell(read.one.end(WriteEnd::Failed, ReadEnd::Abandoned));
            self.store.cancel(id);
        }
    }

    fn spot(&self, frame: usize) -> Spot {
        const { assert!(HEADER <= S::RECORD_AT, "a header fits before its record") };
        debug_assert!(self.frame_bytes >= S::RECORD_AT + self.records.len_max());
        // SAFETY: the memory has so many frames, of so many bytes.
        unsafe {
            let header = host(&*self.memory).add(frame * self.frame_bytes);
            Spot { header, record: header.add(S::RECORD_AT) }
        }
    }
}

#[cfg(test)]
mod tests;
