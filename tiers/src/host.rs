//! A host tier: memory of this host that one worker writes, the slab. A slab describes itself, so other workers read it
//! without asking its owner.
//!
//! - [`shape`] says what lies where in a [`slab`]. The thread in this file copies records into it and out of it, so the
//!   step loop waits for no copy.
//! - If workers share a folder, a slab is a [`mod@file`] there. Other workers read it through a [`view`].
//! - What other workers hold, dead ones included, is a tier of its own ([`reader`]).

mod file;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod generation;
mod neighbour;
mod neighbours;
mod reader;
mod shape;
mod slab;
mod view;

use crate::mover::{BACKLOG_MAX, TierEvent, TierOwner, TierParts};
use crate::mover_thread::{Events, Move, MoveKind, MoverThread, Order, Waiting, orders};
use crate::records::{RecordError, Records};
use domain::{Incarnation, KvLayout, WorkerId};
pub use file::FolderError;
use kv_manager::tiers::{ReadEnd, Tier, TierConfig, WriteEnd, WritePolicy};
use slab::Slab;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use threads::Doing;
use transport::{Failure, Memory, Ticket};

/// The atomics that `generation` uses: here those of `std`, in its test those of loom.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

/// Writes in progress at once. One is copied at a time; the others keep the thread busy.
const WRITES_MAX: usize = 8;

/// Reads that a device's copier carries out at once. A warp sums up each of them, slower than the bus carries it.
const READS_AT_ONCE: usize = 8;

/// Settings of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Name in the log.
    pub name: String,
    /// The worker that it belongs to.
    pub worker: WorkerId,
    /// The worker's incarnation.
    pub life: Incarnation,
    /// Digest of the weights, on which records depend beside the layout.
    pub weights: [u8; 32],
    /// Bytes of its memory.
    pub bytes: u64,
    /// What is written.
    pub write: WritePolicy,
    /// Where workers read each other's slabs. `None`: no other worker reads this one.
    pub shared: Option<Shared>,
}

/// What the workers of a host share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// A folder in a tmpfs. It is made if the folder above exists.
    pub folder: PathBuf,
    /// Bytes of dead workers' slabs that this worker keeps, at most.
    pub adopted_bytes: u64,
}

impl HostConfig {
    /// Returns the name of the slab's file, which no other incarnation has.
    fn file_name(&self) -> String {
        format!("{}-{:016x}{}", self.worker, self.life.0, file::SUFFIX)
    }
}

/// Why a tier could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It holds too few blocks to be of use.
    #[error("a host tier of {bytes} bytes holds {slots} blocks of {each} bytes; give it {needed}")]
    TooSmall {
        /// Bytes that it was given.
        bytes: u64,
        /// Blocks that these bytes hold.
        slots: u64,
        /// Bytes of a block, with its entry in the directory.
        each: u64,
        /// Bytes that it needs.
        needed: u64,
    },
    /// It cannot be shared in its folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Opens a tier for this worker, whose pools have this layout. If it is shared, also opens the tier of what other
/// workers hold. Errors: [`HostError`].
pub fn open_host_tier(config: &HostConfig, layout: &KvLayout, owner: &TierOwner) -> Result<Vec<TierParts>, HostError> {
    let sink = || {
        let events = owner.events.clone();
        move |event| events(event)
    };
    let (own, memory) = over(config, layout, owner.pools.clone(), &owner.failure, sink())?;
    let slots = own.config.slots[0];
    let mut tiers = vec![own];
    if let Some(shared) = &config.shared {
        tiers.push(reader::over(config, shared, layout, owner.pools.clone(), slots, &owner.failure, Box::new(sink()))?);
    }
    tracing::info!(tier = config.name, slots, bytes = memory.len(), shared = ?config.shared, "the host tier is open");
    Ok(tiers)
}

/// Opens a tier over pools in any memory, and returns the slab's memory as well. `sink` takes each event, on the tier's
/// thread. It may wait, but not for ever.
fn over(
    config: &HostConfig,
    layout: &KvLayout,
    pools: Vec<Arc<dyn Memory>>,
    failure: &Failure,
    sink: impl Fn(TierEvent) + Send + 'static,
) -> Result<(TierParts, Arc<dyn Memory>), HostError> {
    let slab = Slab::new(config, layout, &pools)?;
    let (slots, memory) = (slab.slots(), slab.memory());
    let (order, inbox) = orders();
    let (records, events) = (Records::new(layout, pools), Events::new(Box::new(sink)));
    let work = Work { name: config.name.clone(), records, slab, events, inbox, reads: VecDeque::new() };
    let mover = MoverThread::start(format!("{}-host", config.name), failure, order, move || work.run())?;
    let size = TierConfig {
        slots: vec![slots; layout.groups.len()],
        writes_max: WRITES_MAX,
        backlog_max: BACKLOG_MAX,
        write: config.write,
    };
    Ok((TierParts { tier: Tier::Host, mover: Box::new(mover), config: size, records: Vec::new() }, memory))
}

/// The thread.
struct Work {
    name: String,
    records: Records,
    slab: Slab,
    events: Events,
    inbox: Receiver<Order>,
    /// Reads that a copier carries out.
    reads: VecDeque<(Move, Ticket)>,
}

impl Work {
    /// Runs until the tier is dropped. What waits then is not moved.
    fn run(mut self) {
        let mut waiting = Waiting::default();
        while let Some(first) = self.next_order() {
            let mut order = Some(first);
            loop {
                // Before each copy, so that a read that a prompt waits for comes before writes.
                let mut cancelled = BTreeSet::new();
                while let Some(one) = order {
                    match one {
                        Order::Move(one) => waiting.push(one),
                        Order::Cancel(key) => drop(cancelled.insert(key)),
                        // This thread does everything itself, and the worker knows all records.
                        Order::Ended(..) | Order::LookUp(..) => {}
                        Order::Close => return self.end_reads(0),
                    }
                    order = self.inbox.try_recv().ok();
                }
                waiting.cancel(&cancelled).iter().for_each(|one| self.events.tell(one.failed()));
                let Some(one) = waiting.pop(true) else { break };
                self.carry_out(one);
                order = self.inbox.try_recv().ok();
            }
            self.end_reads(0);
            self.events.flush();
        }
    }

    /// Carries out a move. A read of memory of a device is only begun.
    fn carry_out(&mut self, one: Move) {
        if let MoveKind::Read(_, read) = &one.kind {
            // SAFETY: the core keeps the block for this read, and writes nothing to its slot, until it has ended.
            match unsafe { self.slab.begin_take(&self.records, read) } {
                Ok(Some(ticket)) => {
                    self.reads.push_back((one, ticket));
                    return self.end_reads(READS_AT_ONCE - 1);
                }
                Ok(None) => return self.end_read(&one, Ok(())),
                Err(why) => return self.end_read(&one, Err(why)),
            }
        }
        let wrote = self.write(&one.kind);
        self.events.tell(one.end(wrote, ReadEnd::Unread));
    }

    /// Waits for reads, the first ones first, until no more than `left` are under way.
    fn end_reads(&mut self, left: usize) {
        while self.reads.len() > left
            && let Some((one, ticket)) = self.reads.pop_front()
        {
            self.end_read(&one, ticket.wait().map(drop).map_err(RecordError::from));
        }
    }

    fn end_read(&mut self, one: &Move, ended: Result<(), RecordError>) {
        let end = match ended {
            Ok(()) => ReadEnd::Good,
            Err(why) => {
                tracing::warn!(tier = self.name, place = ?one.place(), %why, "a record is wrong; it is not used");
                ReadEnd::Wrong
            }
        };
        self.events.tell(one.end(WriteEnd::Failed, end));
    }

    /// Waits for the next order. Meanwhile the slab gets its pages. `None`: there will be no order.
    fn next_order(&mut self) -> Option<Order> {
        loop {
            match self.inbox.try_recv() {
                Ok(order) => return Some(order),
                Err(TryRecvError::Empty) if self.slab.page() => {}
                Err(_) => return threads::during(Doing::WaitsForMoves, || self.inbox.recv()).ok(),
            }
        }
    }

    fn write(&mut self, kind: &MoveKind) -> WriteEnd {
        match kind {
            MoveKind::Write(write) => {
                // SAFETY: the core keeps the block as it is until this write has ended.
                match unsafe { self.slab.put(&self.records, write) } {
                    Ok(()) => WriteEnd::Written,
                    Err(why) => {
                        tracing::warn!(tier = self.name, place = ?write.place, %why, "a record is not written");
                        WriteEnd::Failed
                    }
                }
            }
            MoveKind::Land(_, lift, record) => {
                self.slab.land(&self.records, lift.to.slot, record);
                WriteEnd::Written
            }
            // No tier is faster than this one, and reads are begun elsewhere.
            MoveKind::Lift(..) | MoveKind::Read(..) => WriteEnd::Failed,
        }
    }
}

#[cfg(test)]
mod tests;

/// The protocol of a slot's generation, with real threads.
#[cfg(test)]
mod words {
    use super::generation;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Changes of the slot; few under an interpreter.
    const CHANGES: u64 = if cfg!(miri) { 30 } else { 10_000 };

    #[test]
    fn no_record_of_two_halves_is_taken_for_a_whole_one() {
        let (word, halves) = (AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=CHANGES {
                    generation::change(&word, || halves.iter().for_each(|half| half.store(n, Ordering::Relaxed)));
                }
            });
            let mut whole = 0;
            while whole < CHANGES {
                let (seen, mut copied) = (generation::now(&word), [0; 2]);
                let is_whole = generation::look(&word, seen, || {
                    copied = halves.each_ref().map(|half| half.load(Ordering::Relaxed));
                });
                if is_whole {
                    assert_eq!(copied[0], copied[1]);
                    whole = copied[0];
                }
                std::thread::yield_now();
            }
        });
    }
}
