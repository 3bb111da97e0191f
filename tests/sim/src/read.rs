//! Reads in progress: bytes are copied out of the owner's memory when their time comes, a few at a time, so that
//! whatever the owner does too early shows.

use crate::event::{Event, Life, ReadKey, WorkerIndex};
use crate::invariants::destination;
use crate::pool::{Pool, WORD};
use crate::process::Inmail;
use crate::world::World;
use domain::{BlockId, BlockRef, Generation, GroupId, ProgressWord, Time, WorkerId};
use std::sync::Arc;
use std::time::Duration;
use transport::{Completion, Lane, ReadBatch, TransferError, TransferId, TransferReport};

/// How long a read waits for a peer that it does not reach.
const STALLED_MAX: Duration = Duration::from_millis(150);
/// How often it tries.
const STALLED_RETRY: Duration = Duration::from_millis(5);

/// A read.
pub(crate) struct Read {
    pub(crate) reader: (WorkerIndex, Life),
    pub(crate) id: TransferId,
    pub(crate) owner: (WorkerIndex, Life),
    source: Vec<Arc<Pool>>,
    progress: ProgressWord,
    batches: Vec<ReadBatch>,
    /// The batch and the word in it that come next.
    batch: usize,
    word: usize,
    /// Its destination, as it was when it was posted.
    pub(crate) destination: Vec<(BlockRef, Generation)>,
    posted: Time,
    began: Option<Time>,
    bytes: u64,
    waits: bool,
    /// It was cancelled and ends then.
    quiesces: Option<Time>,
    /// It fails then.
    fails: Option<Time>,
    stalled: Option<Time>,
}

impl Read {
    /// Whether it has brought anything.
    pub(crate) fn has_read(&self) -> bool {
        self.bytes > 0
    }
}

impl World {
    /// A worker begins to read.
    pub(crate) fn post(&mut self, w: WorkerIndex, id: TransferId, from: WorkerId, batches: Vec<ReadBatch>) {
        let layout = &self.scenario.layout;
        let owner = self.worker_index(from);
        let Some(reader) = &self.workers[w].alive else { return };
        let mut destination: Vec<_> = batches
            .iter()
            .flat_map(|batch| {
                let group = batch.destination.0 as usize;
                let record = layout.record_bytes(group) as u64;
                let block =
                    move |at: u64| BlockRef { group: GroupId(group as u16), block: BlockId((at / record) as u32) };
                batch.copies.iter().map(move |copy| block(copy.to))
            })
            .map(|block| (block, reader.machine.core().kv.generation(block)))
            .collect();
        destination.sort_unstable();
        destination.dedup();
        let reader = (w, self.workers[w].life);
        // An agent is told late that a peer died: the read is begun, and fails.
        let (source, progress, fails) = match &self.workers[owner].alive {
            Some(life) => (life.pools.clone(), life.progress.clone(), None),
            None => (Vec::new(), ProgressWord::new(), Some(self.now)),
        };
        let owner = (owner, self.workers[owner].life);
        let read = Read {
            reader,
            id,
            owner,
            source,
            progress,
            batches,
            batch: 0,
            word: 0,
            destination,
            posted: self.now,
            began: None,
            bytes: 0,
            waits: false,
            quiesces: None,
            fails,
            stalled: None,
        };
        self.read_keys += 1;
        let key = self.read_keys;
        self.reads.insert(key, read);
        let life = self.workers[w].alive.as_mut().expect("it was looked at above");
        if life.reads_fail > 0 {
            life.reads_fail -= 1;
            self.fail_read(key);
        }
        let latency = self.latency();
        self.agenda.enter(self.now + latency, Event::Piece { read: key });
    }

    /// A worker cancels a read, which goes on for a little.
    pub(crate) fn cancel_read(&mut self, w: WorkerIndex, id: TransferId) {
        let reader = (w, self.workers[w].life);
        let longest = self.scenario.network.quiesce_max.as_micros() as u64;
        let at = self.now + self.random.micros(0, longest);
        let key = self.reads.iter().find(|(_, read)| read.reader == reader && read.id == id).map(|(&key, _)| key);
        if let Some(read) = key.and_then(|key| self.reads.get_mut(&key)) {
            read.quiesces.get_or_insert(at);
        }
        if let Some(read) = key {
            self.agenda.enter(at, Event::Piece { read });
        }
    }

    /// A read is going to fail, at once or late.
    pub(crate) fn fail_read(&mut self, key: ReadKey) {
        let at = self.now + self.random.millis(0, 40);
        if let Some(read) = self.reads.get_mut(&key) {
            read.fails.get_or_insert(at);
            self.agenda.enter(at, Event::Piece { read: key });
        }
    }

    /// The owner's word was raised.
    pub(crate) fn word_raised(&mut self, w: WorkerIndex) {
        let owner = (w, self.workers[w].life);
        let waiting = self.reads.iter_mut().filter(|(_, read)| read.owner == owner && read.waits);
        let kicked: Vec<ReadKey> = waiting
            .map(|(&key, read)| {
                read.waits = false;
                key
            })
            .collect();
        for read in kicked {
            let latency = self.latency();
            self.agenda.enter(self.now + latency, Event::Piece { read });
        }
    }

    /// The next bytes of a read, or its end.
    pub(crate) fn piece(&mut self, key: ReadKey) {
        let Some(read) = self.reads.get_mut(&key) else { return };
        let (now, over) = (self.now, |at: Option<Time>| at.is_some_and(|at| at <= self.now));
        if over(read.quiesces) {
            return self.read_ended(key, Err(TransferError::Cancelled));
        }
        if over(read.fails) {
            return self.read_ended(key, Err(TransferError::PeerGone));
        }
        let (reader, owner) = (read.reader, read.owner);
        if self.blocks_reads(owner.0, reader.0) {
            let read = self.reads.get_mut(&key).expect("it was there above");
            let since = *read.stalled.get_or_insert(now);
            if now.since(since) >= STALLED_MAX {
                return self.read_ended(key, Err(TransferError::PeerGone));
            }
            return self.agenda.enter(now + STALLED_RETRY, Event::Piece { read: key });
        }
        let read = self.reads.get_mut(&key).expect("it was there above");
        read.stalled = None;
        let Some(batch) = read.batches.get(read.batch) else {
            return self.read_ended(key, Ok(()));
        };
        if read.progress.get() < batch.gate {
            read.waits = true;
            return;
        }
        read.began.get_or_insert(now);
        let words = batch.len / WORD * batch.copies.count() as usize;
        let piece = words.div_ceil(self.random.range(1, 3) as usize).min(words - read.word);
        let range = read.word..read.word + piece;
        read.bytes += (piece * WORD) as u64;
        read.word = range.end;
        if let Err(what) = destination::check(&self.workers, &self.reads[&key]) {
            return self.violated(destination::NAME, what);
        }
        self.copy(key, range);
        let read = self.reads.get_mut(&key).expect("it was there above");
        if read.word == words {
            read.batch += 1;
            read.word = 0;
        }
        let slow = u64::from(self.workers[reader.0].slow);
        let us = (piece * WORD) as u64 / self.scenario.network.bytes_per_us + self.random.range(0, 20);
        self.agenda.enter(now + Duration::from_micros(us * slow), Event::Piece { read: key });
    }

    /// Copies words of the present batch.
    fn copy(&self, key: ReadKey, words: std::ops::Range<usize>) {
        let read = &self.reads[&key];
        let batch = &read.batches[read.batch];
        let Some(reader) = &self.workers[read.reader.0].alive else { return };
        let source = &read.source[batch.source.0 as usize];
        let destination = &reader.pools[batch.destination.0 as usize];
        for word in words {
            let copy = batch.copies.get((word / (batch.len / WORD)) as u64).expect("the word is one of the batch");
            let offset = word % (batch.len / WORD) * WORD;
            destination.set(copy.to as usize + offset, source.get(copy.from as usize + offset));
        }
    }

    fn read_ended(&mut self, key: ReadKey, result: Result<(), TransferError>) {
        let Some(read) = self.reads.remove(&key) else { return };
        let began = read.began.unwrap_or(self.now);
        let report = TransferReport {
            lane: Lane::Tcp,
            rails: 1,
            bytes: read.bytes,
            wire_bytes: read.bytes,
            queued: began.since(read.posted),
            wire: self.now.since(began),
            elapsed: self.now.since(read.posted),
        };
        self.trace.note(self.now, || format!("w{} read {} ended: {result:?}", read.reader.0, read.id.0));
        if let Some(alive) =
            self.workers[read.reader.0].alive.as_ref().filter(|_| self.workers[read.reader.0].life == read.reader.1)
        {
            alive.shell.notes().posted -= 1;
        }
        let completion = Completion { id: read.id, result: result.map(|()| report), runs: Vec::new() };
        self.mail(read.reader.0, read.reader.1, Inmail::Ended(completion));
    }
}
