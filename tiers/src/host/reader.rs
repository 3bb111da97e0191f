//! The thread that reads what other workers of the host hold. Between reads it looks for changes, so no prompt waits
//! for a look.

use super::neighbours::{Counts, ENTRIES_MAX, NEIGHBOURS_MAX, Neighbours};
use super::{HostConfig, Shared};
use crate::mover::{TierEvent, TierParts};
use crate::mover_thread::{Events, MoveKind, MoverThread, Order, Waiting, now, orders};
use crate::records::{Records, Spot};
use domain::{KvLayout, WorkerId};
use kv_manager::tiers::header::HEADER;
use kv_manager::tiers::{ReadEnd, Tier, TierConfig, WriteEnd, WritePolicy};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use telemetry::metrics::{Gauge, SlabKind, host_slabs, index_bytes};
use threads::Doing;
use transport::{Failure, Memory};

/// How often slabs of other workers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How soon the next look follows one that did not see everything.
const LOOK_ON: Duration = Duration::from_millis(5);
/// Records of other workers that are remembered for each slot of the own slab: all that slabs of the own size hold, if
/// as many are read as may be.
const KNOWN_PER_SLOT: u32 = NEIGHBOURS_MAX as u32;
/// Records of other workers that are remembered, at most.
const KNOWN_MAX: u32 = 1 << 18;

/// Opens the tier of what other workers hold. The own slab has so many slots of each group.
pub(super) fn over(
    config: &HostConfig,
    shared: &Shared,
    layout: &KvLayout,
    pools: Vec<Arc<dyn Memory>>,
    slots: u32,
    failure: &Failure,
    sink: Box<dyn Fn(TierEvent) + Send>,
) -> io::Result<TierParts> {
    let records = Records::new(layout, pools);
    let frame = vec![0; HEADER + records.len_max()];
    let known = slots.saturating_mul(KNOWN_PER_SLOT).min(KNOWN_MAX);
    let (name, own, weights) = (config.name.clone(), config.file_name(), config.weights);
    let neighbours = Neighbours::new(name, shared.clone(), own, layout, weights, known as usize, ENTRIES_MAX);
    let (order, inbox) = orders();
    let (events, meters) = (Events::new(sink), Meters::new(config.worker));
    let work = Reader { records, neighbours, frame, events, inbox, due: now(), meters };
    let mover = MoverThread::start(format!("{}-neighbours", config.name), failure, order, move || work.run())?;
    let slots = vec![known; layout.groups.len()];
    let size = TierConfig { slots, writes_max: 0, backlog_max: 0, write: WritePolicy::Never };
    Ok(TierParts { tier: Tier::Neighbours, mover: Box::new(mover), config: size, records: Vec::new() })
}

/// The thread.
struct Reader {
    records: Records,
    neighbours: Neighbours,
    /// Memory of a record until it is verified.
    frame: Vec<u8>,
    events: Events,
    inbox: Receiver<Order>,
    due: Instant,
    meters: Meters,
}

impl Reader {
    /// Runs until the tier is dropped. What waits then is not read.
    fn run(mut self) {
        let mut waiting = Waiting::default();
        loop {
            let patience = self.due.saturating_duration_since(now());
            let mut order = match threads::during(Doing::WaitsForMoves, || self.inbox.recv_timeout(patience)) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            loop {
                let mut cancelled = BTreeSet::new();
                while let Some(one) = order {
                    match one {
                        Order::Move(one) => waiting.push(one),
                        Order::Cancel(key) => drop(cancelled.insert(key)),
                        // This thread does everything itself, and reports all records that it finds.
                        Order::Ended(..) | Order::LookUp(..) => {}
                        Order::Close => return,
                    }
                    order = self.inbox.try_recv().ok();
                }
                waiting.cancel(&cancelled).iter().for_each(|one| self.events.tell(one.failed()));
                let Some(one) = waiting.pop(true) else { break };
                let read = self.read(&one.kind);
                self.events.tell(one.end(WriteEnd::Failed, read));
                order = self.inbox.try_recv().ok();
            }
            if now() >= self.due {
                self.look();
            }
            self.events.flush();
        }
    }

    fn read(&mut self, kind: &MoveKind) -> ReadEnd {
        // Slabs of other workers are never written, and nothing is lifted from them.
        let MoveKind::Read(_, read) = kind else { return ReadEnd::Unread };
        let header = self.frame.as_mut_ptr();
        // SAFETY: the frame has room for a header and the record of any group behind it.
        let frame = Spot { header, record: unsafe { header.add(HEADER) } };
        // SAFETY: the frame is this value's alone; the core keeps the block for this read until it has ended.
        unsafe { self.neighbours.read(now(), &self.records, read, frame) }
    }

    fn look(&mut self) {
        let (found, more) = self.neighbours.look(now());
        self.due = now() + if more { LOOK_ON } else { LOOK_EVERY };
        self.meters.show(self.neighbours.counts(), self.neighbours.index_bytes());
        let tier = Tier::Neighbours;
        // Losses first: the same record may have been found in another slab.
        if !found.gone.is_empty() {
            self.events.tell(TierEvent::Forgotten { tier, records: found.gone });
        }
        if !found.learned.is_empty() {
            self.events.tell(TierEvent::Learned { tier, records: found.learned });
        }
    }
}

/// The metrics of slabs.
struct Meters {
    slabs: [(SlabKind, Gauge); 3],
    index: [Gauge; 2],
}

impl Meters {
    fn new(worker: WorkerId) -> Self {
        let kinds = [SlabKind::Live, SlabKind::Adopted, SlabKind::Foreign];
        Self {
            slabs: kinds.map(|kind| (kind, host_slabs(worker, kind))),
            index: ["used", "budget"].map(|kind| index_bytes(worker, "slabs", kind)),
        }
    }

    fn show(&self, counts: Counts, bytes: [usize; 2]) {
        for (gauge, bytes) in self.index.iter().zip(bytes) {
            gauge.set(bytes as f64);
        }
        for (kind, gauge) in &self.slabs {
            let count = match kind {
                SlabKind::Live => counts.live,
                SlabKind::Adopted => counts.adopted,
                SlabKind::Foreign => counts.foreign,
            };
            gauge.set(count as f64);
        }
    }
}

#[cfg(test)]
mod tests;
