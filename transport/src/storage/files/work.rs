//! The thread of a mover of files: what is under way, and for whom.

use super::operation::{Done, Operation};
use super::plan::{Cursor, FilePlan};
use super::prepared::FileSlot;
use super::way::{Engine, FileWay};
use super::{FileError, FileReport, STARTED_BYTES, STARTED_OPERATIONS, Shared, lock};
use crate::agent::event::TransferId;
use crate::clock::now;
use crate::failure::caught;
use crate::transfer::PostError;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use threads::Doing;

/// How often an operation is asked for again that the system puts off (`EAGAIN`, `EINTR`); then that is its error.
const REPEATS_MAX: u32 = 1000;

/// A transfer that was posted and has not ended.
pub(super) struct Posted {
    id: TransferId,
    plan: FilePlan,
    /// Where the plan goes back to.
    slot: Arc<FileSlot>,
    cursor: Cursor,
    /// All its operations were made, or no more shall be.
    exhausted: bool,
    under_way: usize,
    failed: Option<FileError>,
    at: Instant,
    begun: Option<Instant>,
}

/// What the thread has to do.
pub(super) struct Work {
    shared: Arc<Shared>,
    engine: Engine,
    active: VecDeque<Posted>,
    /// What is under way, and for which transfer.
    slots: Vec<Option<(TransferId, Operation)>>,
    free: Vec<usize>,
    closed: bool,
}

impl Work {
    pub(super) fn new(shared: Arc<Shared>, engine: Engine) -> Self {
        let depth = shared.config.depth as usize;
        let active = VecDeque::with_capacity(shared.config.posted_max);
        Self { shared, engine, active, slots: vec![None; depth], free: (0..depth).collect(), closed: false }
    }

    /// Returns once the mover is dropped and nothing is under way any more, or when the system takes nothing more,
    /// or after a panic.
    pub(super) fn run(mut self) {
        match caught(|| self.carry_on()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.break_off(error.to_string(), FileError::Broken { errno }, PostError::Broken { errno });
            }
            Err(panic) => {
                self.shared.failure.report(std::thread::current().name().unwrap_or_default(), &panic);
                self.break_off(panic.to_string(), FileError::Panicked, PostError::Panicked);
            }
        }
    }

    /// Ends what is open, and refuses what comes. The system refused a call that nothing here makes wrong, or a
    /// panic left who knows what; so it is not known what becomes of what is under way.
    fn break_off(mut self, why: String, error: FileError, refusal: PostError) {
        let mover = &self.shared.config.name;
        tracing::error!(mover, why, "files cannot be read or written any more");
        let way = self.engine.way();
        // It may come still: memory, files and what the kernel shares with us are never given back.
        std::mem::forget(self.shared.clone());
        std::mem::forget(self.engine);
        let mut orders = lock(&self.shared.orders);
        orders.broken = Some(refusal);
        self.active.append(&mut orders.posted);
        drop(orders);
        lock(&self.shared.status).broken = Some(why);
        for posted in self.active {
            let failed = if posted.is_finished() { posted.failed } else { Some(error) };
            // A sink that panics again keeps nobody from the end of the next one.
            if let Err(panic) = caught(|| posted.end(&self.shared, way, failed)) {
                tracing::error!(mover, %panic, "the sink that takes the ends of transfers panicked");
            }
        }
    }

    fn carry_on(&mut self) -> io::Result<()> {
        let mut done = Vec::with_capacity(self.slots.len());
        self.engine.begin()?;
        loop {
            self.shared.bell.answer();
            self.carry_out();
            self.fill()?;
            if self.active.iter().any(Posted::is_finished) {
                self.keep_busy(&mut done)?;
                self.end_finished();
            }
            if self.closed && self.active.is_empty() {
                return Ok(());
            }
            let engine = &mut self.engine;
            threads::during(Doing::WaitsForFiles, || self.shared.bell.sleep(|wait| engine.turn(wait, &mut done)))?;
            done.drain(..).for_each(|done| self.done(done));
        }
    }

    /// Starts what is queued, and what there is room for since more ended, as long as that goes on, but no more
    /// than may be under way: to wake those who are told of ends takes as long as some reads do, and a device ends
    /// many together, of which the first wakes this thread.
    fn keep_busy(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let mut ended = 0;
        while ended < self.slots.len() {
            self.engine.turn(false, done)?;
            if done.is_empty() {
                return Ok(());
            }
            ended += done.len();
            done.drain(..).for_each(|done| self.done(done));
            // Who posted while there was no room rang no bell.
            self.carry_out();
            self.fill()?;
        }
        self.engine.start()
    }

    /// Does what others asked for.
    fn carry_out(&mut self) {
        let mut orders = lock(&self.shared.orders);
        self.closed |= orders.closed;
        orders.is_full = false;
        self.active.append(&mut orders.posted);
        let cancelled = std::mem::take(&mut orders.cancelled);
        let registered = std::mem::take(&mut orders.registered);
        drop(orders);
        for (id, memory) in registered {
            if let Engine::Ring(ring) = &mut self.engine {
                ring.register(id, &*memory);
                let why = ring.unregistered().map(|error| error.to_string());
                let known = &mut lock(&self.shared.status).unregistered;
                if known.is_none()
                    && let Some(why) = &why
                {
                    tracing::warn!(
                        mover = self.shared.config.name,
                        why,
                        "memory is pinned for every read and write of a file"
                    );
                }
                *known = why;
            }
        }
        let closed = self.closed;
        for posted in self.active.iter_mut().filter(|posted| closed || cancelled.contains(&posted.id)) {
            posted.stop(FileError::Cancelled);
        }
    }

    /// Begins operations, as many as may be under way: of the transfer that was posted first, then of the next.
    /// Took they turns, those that were posted together would end together, and the devices would have nothing to
    /// do until their callers post more.
    fn fill(&mut self) -> io::Result<()> {
        let (mut made, mut bytes) = (0, 0);
        for posted in &mut self.active {
            while let Some(&slot) = self.free.last()
                && let Some(operation) = posted.next(&self.engine)
            {
                self.free.pop();
                posted.under_way += 1;
                posted.begun.get_or_insert_with(now);
                self.engine.push(slot, &operation);
                self.slots[slot] = Some((posted.id, operation));
                (made, bytes) = (made + 1, bytes + operation.range.len);
                if made == STARTED_OPERATIONS || bytes >= STARTED_BYTES {
                    (made, bytes) = (0, 0);
                    self.engine.start()?;
                }
            }
        }
        if self.free.is_empty() {
            lock(&self.shared.orders).is_full = true;
        }
        Ok(())
    }

    /// An operation ended: its transfer goes on, with the rest of it first where it did a part.
    fn done(&mut self, done: Done) {
        let Some((id, mut operation)) = self.slots.get_mut(done.slot).and_then(Option::take) else { return };
        let Some(posted) = self.active.iter_mut().find(|posted| posted.id == id) else { return };
        let again = match done.result {
            Ok(0) => Err(FileError::CutShort),
            Ok(moved) if moved < operation.range.len => {
                operation.advance(moved);
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) if operation.repeats < REPEATS_MAX => {
                    operation.repeats += 1;
                    Ok(true)
                }
                errno => Err(FileError::System { errno: errno.unwrap_or(libc::EIO) }),
            },
        };
        match again {
            Ok(true) if posted.failed.is_none() => {
                self.engine.push(done.slot, &operation);
                self.slots[done.slot] = Some((id, operation));
                return;
            }
            Ok(_) => {}
            Err(error) => posted.stop(error),
        }
        posted.under_way -= 1;
        self.free.push(done.slot);
    }

    /// Tells the ends of the transfers of which nothing is left and nothing under way.
    fn end_finished(&mut self) {
        for _ in 0..self.active.len() {
            let Some(posted) = self.active.pop_front() else { break };
            if posted.is_finished() {
                let failed = posted.failed;
                posted.end(&self.shared, self.engine.way(), failed);
            } else {
                self.active.push_back(posted);
            }
        }
    }
}

impl Posted {
    pub(super) fn new(id: TransferId, plan: FilePlan, slot: Arc<FileSlot>, at: Instant) -> Self {
        let cursor = Cursor::default();
        Self { id, plan, slot, cursor, exhausted: false, under_way: 0, failed: None, at, begun: None }
    }

    fn next(&mut self, engine: &Engine) -> Option<Operation> {
        let len_max = |offset| engine.at_once(offset);
        let operation = if self.exhausted { None } else { self.plan.next(&mut self.cursor, len_max) };
        // Seen now and not when it is asked for the next, for which there may be no slot for long, so that its end
        // is told in time.
        self.exhausted |= self.plan.is_over(&self.cursor);
        operation
    }

    /// Nothing of it is left, and nothing under way.
    fn is_finished(&self) -> bool {
        self.exhausted && self.under_way == 0
    }

    /// Begins nothing more. The first reason counts.
    fn stop(&mut self, why: FileError) {
        self.exhausted = true;
        self.failed.get_or_insert(why);
    }

    /// It is told so.
    fn end(self, shared: &Shared, way: FileWay, failed: Option<FileError>) {
        let Self { id, plan, slot, at, begun, .. } = self;
        let (now, begun) = (now(), begun.unwrap_or(at));
        if failed.is_none() {
            lock(&shared.speeds).ended(plan.bytes, begun, now);
        }
        let (queued, wire) = (begun.duration_since(at), now.duration_since(begun));
        let report = FileReport { way, bytes: plan.bytes.sum(), queued, wire };
        shared.end(id, plan, slot, failed.map_or(Ok(report), Err));
    }
}
