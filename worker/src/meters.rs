//! The worker's metrics, as handles that are looked up once.

use crate::lane_meters::LaneMeters;
use crate::prompt_sources::{Share, Source};
use crate::tier_meters::TierMeters;
use domain::{GroupId, KvLayout, WorkerId};
use kv_manager::{GroupStats, KvManager};
use metrics::{Counter, Gauge, Histogram};
use std::collections::BTreeMap;
use telemetry::metrics::{self as declared, BlockState};

/// Handles of one worker.
pub(crate) struct Meters {
    worker: WorkerId,
    waiting: Gauge,
    running: Gauge,
    waiting_tokens: Gauge,
    pub(crate) preemptions: Counter,
    pub(crate) prefix_hit_tokens: Counter,
    pub(crate) prefill_tokens: Counter,
    leases_live: Gauge,
    pub(crate) leases_lapsed: Counter,
    pub(crate) steps_failed: Counter,
    pub(crate) sequences_failed: Counter,
    pub(crate) step_time: Histogram,
    pub(crate) step_overhead: Histogram,
    pub(crate) batch_rows: Histogram,
    pub(crate) session_dropped: Counter,
    pub(crate) session_backlog: Gauge,
    pub(crate) peer_dropped: Counter,
    pub(crate) stale_incarnation: Counter,
    pub(crate) stale_lease: Counter,
    pub(crate) lanes: LaneMeters,
    pub(crate) tiers: TierMeters,
    /// Tokens and times of prompts; a source is shown once it had some.
    sources: BTreeMap<Source, [Histogram; 2]>,
    blocks: Vec<[Gauge; 4]>,
    bytes: Vec<[Gauge; 4]>,
    lookups: Vec<[Counter; 2]>,
    evictions: Vec<[Counter; 2]>,
    pinned: Vec<Gauge>,
    parked: Vec<Counter>,
    index: [Gauge; 2],
}

impl Meters {
    pub(crate) fn new(worker: WorkerId, name: &str, groups: usize) -> Self {
        let states = [BlockState::Free, BlockState::Filling, BlockState::InUse, BlockState::Cached];
        let group = |group: usize| GroupId(group as u16);
        Self {
            worker,
            waiting: declared::waiting_sequences(worker),
            running: declared::running_sequences(worker),
            waiting_tokens: declared::waiting_tokens(worker),
            preemptions: declared::preemptions(worker),
            prefix_hit_tokens: declared::prefix_hit_tokens(worker),
            prefill_tokens: declared::prefill_tokens(worker),
            leases_live: declared::leases_live(worker),
            leases_lapsed: declared::leases_lapsed(worker),
            steps_failed: declared::steps_failed(worker),
            sequences_failed: declared::sequences_failed(worker),
            step_time: declared::step_time(worker),
            step_overhead: declared::step_overhead(worker),
            batch_rows: declared::batch_rows(worker),
            session_dropped: declared::messages_dropped(worker, "session"),
            session_backlog: declared::session_backlog(worker),
            peer_dropped: declared::messages_dropped(worker, "peer"),
            stale_incarnation: declared::stale_messages(declared::Stale::Incarnation),
            stale_lease: declared::stale_messages(declared::Stale::Lease),
            lanes: LaneMeters::new(worker, name),
            tiers: TierMeters::new(worker),
            sources: BTreeMap::new(),
            blocks: (0..groups).map(|g| states.map(|state| declared::kv_blocks(worker, group(g), state))).collect(),
            bytes: (0..groups).map(|g| states.map(|state| declared::kv_bytes(worker, group(g), state))).collect(),
            lookups: (0..groups)
                .map(|g| ["hit", "miss"].map(|result| declared::kv_lookups(worker, group(g), result)))
                .collect(),
            evictions: (0..groups)
                .map(|g| [declared::kv_evictions, declared::kv_quota_evictions].map(|of| of(worker, group(g))))
                .collect(),
            pinned: (0..groups).map(|g| declared::kv_pinned(worker, group(g))).collect(),
            parked: (0..groups).map(|g| declared::kv_parked(worker, group(g))).collect(),
            index: ["used", "budget"].map(|kind| declared::index_bytes(worker, "device", kind)),
        }
    }

    /// A prompt has this share of its tokens from the source.
    pub(crate) fn source(&mut self, source: Source, share: Share) {
        let worker = self.worker;
        let [tokens, time] = self.sources.entry(source).or_insert_with(|| {
            let name = source.name();
            [declared::prompt_source_tokens(worker, name), declared::prompt_source_time(worker, name)]
        });
        tokens.record(f64::from(share.tokens));
        if let Some(took) = share.took {
            time.record(took.as_secs_f64());
        }
    }

    /// `waiting`: how many sequences wait, and how many prompt tokens; `running`: how many run.
    pub(crate) fn publish(&self, kv: &KvManager, waiting: (usize, u64), running: usize, layout: &KvLayout) {
        self.waiting.set(waiting.0 as f64);
        self.running.set(running as f64);
        self.waiting_tokens.set(waiting.1 as f64);
        self.leases_live.set(kv.leases_live() as f64);
        self.tiers.publish(kv, layout);
        for (gauge, bytes) in self.index.iter().zip([kv.index_bytes(), kv.index_bytes_max()]) {
            gauge.set(bytes as f64);
        }
        for (at, stats) in kv.stats().into_iter().enumerate() {
            let GroupStats { free, filling, in_use, cached, pinned, evictions, quota_evictions, parked, .. } = stats;
            let gauges = self.blocks[at].iter().zip(&self.bytes[at]);
            for ((blocks, bytes), value) in gauges.zip([free, filling, in_use, cached]) {
                blocks.set(f64::from(value));
                bytes.set(f64::from(value) * layout.record_bytes(at) as f64);
            }
            for (counter, value) in self.lookups[at].iter().zip([stats.hits, stats.misses]) {
                counter.absolute(value);
            }
            for (counter, value) in self.evictions[at].iter().zip([evictions, quota_evictions]) {
                counter.absolute(value);
            }
            self.pinned[at].set(f64::from(pinned));
            self.parked[at].absolute(parked);
        }
    }
}
