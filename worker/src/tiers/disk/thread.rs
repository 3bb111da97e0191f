//! The thread of a tier.

use super::log::LogFile;
use super::shelves::Shelves;
use crate::tiers::TierEnd;
use domain::{BlockHash, BlockRef, SeqKey};
use kv_manager::tiers::header::{HEADER, RecordHeader};
use kv_manager::tiers::{ReadEnd, Slot, Tier, TierRead, TierWrite, WriteEnd};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;
use transport::{
    Direction, FILE_ALIGN, FileBatch, FileCopy, FileEnd, FileError, FileId, FileMover, Memory, RegionId, TransferId,
    checksum,
};

/// So many failures of the disk one after the other, and it is given up.
const FAILURES_MAX: u32 = 8;

/// What the thread is asked for. Reads are no more than the device has blocks, writes no more than the core has under way at once,
/// ends no more than there are frames: the queue is bounded by them.
pub(super) enum Order {
    Write(TierWrite, Instant),
    Read(SeqKey, TierRead, Instant),
    Cancel(SeqKey),
    Ended(FileEnd),
    Close,
}

/// A move, and when it was asked for.
#[derive(Clone, Copy)]
pub(super) struct Move {
    what: What,
    at: Instant,
}

#[derive(Clone, Copy)]
enum What {
    Write(TierWrite),
    Read(SeqKey, TierRead),
}

impl Move {
    fn slot(&self) -> Slot {
        match self.what {
            What::Write(write) => write.place.slot,
            What::Read(_, read) => read.place.slot,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "moves are timed; nothing is decided by it")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The thread.
pub(super) struct Work {
    pub(super) name: String,
    pub(super) shelves: Shelves,
    pub(super) fingerprint: u64,
    pub(super) pools: Vec<Arc<dyn Memory>>,
    pub(super) sink: Box<dyn Fn(TierEnd) + Send>,
    pub(super) inbox: Receiver<Order>,
    pub(super) mover: FileMover,
    pub(super) file: FileId,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) region: RegionId,
    pub(super) free: Vec<usize>,
    pub(super) reads: VecDeque<(SeqKey, TierRead, Instant)>,
    pub(super) writes: VecDeque<(TierWrite, Instant)>,
    /// With the frame of each.
    pub(super) under_way: HashMap<TransferId, (Move, usize)>,
    /// Failures of the disk, one after the other.
    pub(super) failures: u32,
    pub(super) off: bool,
    pub(super) log: LogFile,
    /// Held as long as the folders are used.
    pub(super) _locks: Vec<File>,
}

impl Work {
    /// Returns once the tier is dropped and nothing is under way any more.
    pub(super) fn run(mut self) {
        let mut closed = false;
        while !closed || !self.under_way.is_empty() {
            let Ok(mut order) = self.inbox.recv() else { return };
            let mut cancelled = BTreeSet::new();
            loop {
                match order {
                    Order::Write(write, at) => self.writes.push_back((write, at)),
                    Order::Read(key, read, at) => self.reads.push_back((key, read, at)),
                    Order::Cancel(key) => drop(cancelled.insert(key)),
                    Order::Ended(end) => self.ended(end),
                    Order::Close => {
                        closed = true;
                        self.under_way.keys().for_each(|&id| self.mover.cancel(id));
                        self.reads.clear();
                        self.writes.clear();
                    }
                }
                match self.inbox.try_recv() {
                    Ok(next) => order = next,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            if !cancelled.is_empty() {
                self.cancel(&cancelled);
            }
            self.begin();
        }
    }

    /// Begins moves while frames are free: first those that somebody waits for.
    fn begin(&mut self) {
        while let Some(&frame) = self.free.last() {
            if let Some((key, read, at)) = self.reads.pop_front() {
                self.post(Move { what: What::Read(key, read), at }, frame);
            } else if let Some((write, at)) = self.writes.pop_front() {
                self.fill(frame, &write);
                self.post(Move { what: What::Write(write), at }, frame);
            } else {
                return;
            }
        }
    }

    /// Copies the record into the frame, behind its header.
    fn fill(&self, frame: usize, write: &TierWrite) {
        let len = self.shelves.of_slot(write.place.slot).record_bytes;
        let frame = self.frame(frame);
        // SAFETY: the frame has room for a header's sector and the record of any group, and is nobody else's now. The block is
        // inside its pool, and nobody writes it until this write has ended.
        let record = unsafe {
            let record = frame.add(FILE_ALIGN as usize);
            std::ptr::copy_nonoverlapping(self.block(write.block, len), record, len);
            std::slice::from_raw_parts(record, len)
        };
        let header = RecordHeader { checksum: checksum(record), ..self.header(write.place.slot, write.hash) };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(header.encode().as_ptr(), frame, HEADER) };
    }

    fn post(&mut self, what: Move, frame: usize) {
        if self.off {
            return self.end(what, None);
        }
        let direction = if matches!(what.what, What::Write(_)) { Direction::Write } else { Direction::Read };
        let slot = what.slot();
        let batch = FileBatch {
            direction,
            file: self.file,
            memory: self.region,
            len: self.shelves.of_slot(slot).slot_bytes,
            copies: vec![FileCopy {
                file: self.shelves.offset(slot),
                memory: (frame * self.shelves.frame_bytes()) as u64,
            }],
        };
        let posted = self.mover.prepare(vec![batch]).map_err(|error| error.to_string());
        match posted.and_then(|transfer| self.mover.post(transfer).map_err(|error| error.to_string())) {
            Ok(id) => {
                self.free.pop();
                self.under_way.insert(id, (what, frame));
            }
            Err(reason) => {
                self.failed(&reason);
                self.end(what, None);
            }
        }
    }

    fn ended(&mut self, end: FileEnd) {
        let Some((what, frame)) = self.under_way.remove(&end.id) else { return };
        let good = match end.result {
            Ok(_) => {
                self.failures = 0;
                match what.what {
                    What::Write(write) => match self.log.append(write.place.slot, write.hash) {
                        Ok(()) => Some(true),
                        Err(error) => {
                            self.failed(&format!("the log cannot be written: {error}"));
                            None
                        }
                    },
                    What::Read(_, read) => Some(self.take(frame, &read)),
                }
            }
            Err(FileError::Cancelled) => None,
            Err(error) => {
                self.failed(&error.to_string());
                None
            }
        };
        self.free.push(frame);
        self.end(what, good);
    }

    /// Copies a record that was read into its block, if it is the right one.
    fn take(&self, frame: usize, read: &TierRead) -> bool {
        let len = self.shelves.of_slot(read.place.slot).record_bytes;
        let frame = self.frame(frame);
        // SAFETY: as in `fill`.
        let (header, record) = unsafe {
            let header = std::slice::from_raw_parts(frame, HEADER);
            (header, std::slice::from_raw_parts(frame.add(FILE_ALIGN as usize), len))
        };
        let expected = self.header(read.place.slot, read.hash);
        let found = header.first_chunk().ok_or("it is too short".to_owned());
        let found = found.and_then(|header| expected.checksum_in(header).map_err(|error| format!("{error:?}")));
        let wrong = match found {
            Ok(sum) if sum == checksum(record) => None,
            Ok(_) => Some("its bytes do not match its checksum".to_owned()),
            Err(error) => Some(format!("its header is not the one that is looked for: {error}")),
        };
        if let Some(why) = wrong {
            tracing::warn!(tier = self.name, slot = ?read.place.slot, why, "a record on disk is wrong; it is not used");
            return false;
        }
        // SAFETY: the block is inside its pool, and is this read's alone until it has ended.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), self.block(read.block, len), len) };
        true
    }

    /// The disk failed once more.
    fn failed(&mut self, reason: &str) {
        self.failures += 1;
        tracing::warn!(tier = self.name, reason, failures = self.failures, "the disk failed");
        if self.failures >= FAILURES_MAX && !self.off {
            self.off = true;
            (self.sink)(TierEnd::Off {
                tier: Tier::Disk,
                reason: format!("{FAILURES_MAX} failures one after the other, the last: {reason}"),
            });
        }
    }

    /// Tells of a move that ended. `good`: a record was written, or read and verified; `Some(false)`: it is wrong; `None`: it was
    /// not moved.
    fn end(&self, Move { what, at }: Move, good: Option<bool>) {
        let elapsed = now().duration_since(at);
        (self.sink)(match what {
            What::Write(write) => {
                let end = if good == Some(true) { WriteEnd::Written } else { WriteEnd::Failed };
                TierEnd::Wrote { write, end, elapsed }
            }
            What::Read(key, read) => {
                let end = good.map_or(ReadEnd::Unread, |good| if good { ReadEnd::Good } else { ReadEnd::Wrong });
                TierEnd::Read { key, read, end, elapsed }
            }
        });
    }

    /// Ends the reads of these loads that have not begun; the others end by themselves.
    fn cancel(&mut self, keys: &BTreeSet<SeqKey>) {
        let (cancelled, rest) = self.reads.drain(..).partition(|(key, ..)| keys.contains(key));
        self.reads = rest;
        let cancelled: VecDeque<_> = cancelled;
        cancelled.into_iter().for_each(|(key, read, at)| self.end(Move { what: What::Read(key, read), at }, None));
    }

    fn header(&self, slot: Slot, hash: BlockHash) -> RecordHeader {
        let len = self.shelves.of_slot(slot).record_bytes as u64;
        RecordHeader { group: slot.group, hash, fingerprint: self.fingerprint, len, checksum: 0 }
    }

    fn frame(&self, frame: usize) -> *mut u8 {
        // SAFETY: the memory has so many frames.
        unsafe { self.memory.as_ptr().add(frame * self.shelves.frame_bytes()) }
    }

    /// The first of a block's `len` bytes.
    fn block(&self, block: BlockRef, len: usize) -> *mut u8 {
        let pool = &self.pools[usize::from(block.group.0)];
        let begin = block.block.0 as usize * len;
        assert!(begin + len <= pool.len(), "{block:?} is not in its pool");
        // SAFETY: it is inside, as was just seen.
        unsafe { pool.as_ptr().add(begin) }
    }
}
