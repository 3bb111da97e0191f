//! The metrics of a worker's tiers, as handles that are looked up once.

use domain::{KvLayout, WorkerId};
use kv_manager::KvManager;
use kv_manager::tiers::{ReadEnd, Tier, TierStats, WriteEnd};
use metrics::{Counter, Gauge, Histogram};
use std::collections::BTreeMap;
use std::time::Duration;
use telemetry::metrics::{self as declared, RecordState};

/// Of all tiers that the worker has, so that nothing is shown of one that is not there.
pub(crate) struct TierMeters {
    worker: WorkerId,
    tiers: BTreeMap<Tier, Handles>,
}

struct Handles {
    open: Gauge,
    records: [Gauge; 3],
    bytes: Gauge,
    lookups: [Counter; 2],
    moves: [Counter; 14],
    written: Moved,
    read: Moved,
    /// Of the tier that records are lifted to.
    lifted: Option<Moved>,
    wear: Gauge,
    index: [Gauge; 2],
}

/// One direction of moves.
struct Moved {
    bytes: Counter,
    time: Histogram,
    /// What the counter says.
    sum: u64,
    /// Bytes of the largest record.
    largest: u64,
}

impl TierMeters {
    pub(crate) fn new(worker: WorkerId) -> Self {
        Self { worker, tiers: BTreeMap::new() }
    }

    /// Tells of a tier from now on.
    pub(crate) fn show(&mut self, tier: Tier) {
        let (worker, name) = (self.worker, tier.name());
        let states = [RecordState::Free, RecordState::Writing, RecordState::Held];
        let results = [
            "written",
            "existed",
            "read",
            "evicted",
            "quota_evicted",
            "refused",
            "quota_refused",
            "late",
            "failed",
            "corrupt",
            "missing",
            "found",
            "lifted",
            "lifted_in_vain",
        ];
        let moved = |direction| Moved {
            bytes: declared::tier_moved_bytes(worker, name, direction),
            time: declared::tier_move_time(worker, name, direction),
            sum: 0,
            largest: 0,
        };
        let handles = Handles {
            open: declared::tier_open(worker, name),
            records: states.map(|state| declared::tier_records(worker, name, state)),
            bytes: declared::tier_bytes(worker, name),
            lookups: ["hit", "miss"].map(|result| declared::tier_lookups(worker, name, result)),
            moves: results.map(|result| declared::tier_moves(worker, name, result)),
            written: moved("write"),
            read: moved("read"),
            lifted: (tier == Tier::Host).then(|| moved("lift")),
            wear: declared::tier_wear(worker, name),
            index: ["used", "budget"].map(|kind| declared::index_bytes(worker, name, kind)),
        };
        handles.open.set(1.0);
        self.tiers.insert(tier, handles);
    }

    /// Whether the tier is relied on.
    pub(crate) fn open(&self, tier: Tier, open: bool) {
        if let Some(handles) = self.tiers.get(&tier) {
            handles.open.set(f64::from(u8::from(open)));
        }
    }

    /// A write of a record of so many bytes ended.
    pub(crate) fn wrote(&mut self, tier: Tier, end: WriteEnd, bytes: u64, elapsed: Duration) {
        if let Some(handles) = self.tiers.get_mut(&tier).filter(|_| end == WriteEnd::Written) {
            handles.written.count(bytes, elapsed);
        }
    }

    /// A read of a record of so many bytes ended.
    pub(crate) fn read(&mut self, tier: Tier, end: ReadEnd, bytes: u64, elapsed: Duration) {
        if let Some(handles) = self.tiers.get_mut(&tier).filter(|_| end == ReadEnd::Good) {
            handles.read.count(bytes, elapsed);
        }
    }

    /// A record of so many bytes was lifted to the tier.
    pub(crate) fn lifted(&mut self, tier: Tier, bytes: u64, elapsed: Duration) {
        if let Some(lifted) = self.tiers.get_mut(&tier).and_then(|handles| handles.lifted.as_mut()) {
            lifted.count(bytes, elapsed);
        }
    }

    pub(crate) fn publish(&self, kv: &KvManager, layout: &KvLayout) {
        let mut bytes = BTreeMap::<Tier, usize>::new();
        for (tier, group, records) in kv.tier_records() {
            *bytes.entry(tier).or_default() += records * layout.stored_bytes(usize::from(group.0));
        }
        for (tier, stats) in kv.tier_stats() {
            if let Some(handles) = self.tiers.get(&tier) {
                handles.publish(&stats);
                handles.bytes.set(bytes.get(&tier).copied().unwrap_or(0) as f64);
            }
        }
    }
}

impl Handles {
    fn publish(&self, stats: &TierStats) {
        let TierStats { free, writing, held, hits, misses, .. } = *stats;
        let TierStats { written, existed, read, evictions, quota_evictions, refused, quota_refused, .. } = *stats;
        let TierStats {
            late,
            failed,
            corrupt,
            missing,
            found,
            lifted,
            lifted_in_vain,
            index_bytes,
            index_bytes_max,
            ..
        } = *stats;
        for (gauge, value) in self.records.iter().zip([free, writing, held]) {
            gauge.set(f64::from(value));
        }
        for (counter, value) in self.lookups.iter().zip([hits, misses]) {
            counter.absolute(value);
        }
        let moves = [
            written,
            existed,
            read,
            evictions,
            quota_evictions,
            refused,
            quota_refused,
            late,
            failed,
            corrupt,
            missing,
            found,
            lifted,
            lifted_in_vain,
        ];
        for (gauge, bytes) in self.index.iter().zip([index_bytes, index_bytes_max]) {
            gauge.set(bytes as f64);
        }
        // Before anything was read, as if one record had been: a tier that is only written wears, too.
        self.wear.set(self.written.sum as f64 / self.read.sum.max(self.written.largest).max(1) as f64);
        for (counter, value) in self.moves.iter().zip(moves) {
            counter.absolute(value);
        }
    }
}

impl Moved {
    fn count(&mut self, bytes: u64, elapsed: Duration) {
        self.bytes.increment(bytes);
        self.sum += bytes;
        self.largest = self.largest.max(bytes);
        self.time.record(elapsed.as_secs_f64());
    }
}
