//! The metrics of a worker's transport: what it counted, and which lane it took to whom.

use domain::WorkerId;
use metrics::{Counter, Gauge};
use std::collections::HashMap;
use telemetry::metrics as declared;
use transport::{AgentCounts, LaneStatus};

/// Handles of one worker.
pub(crate) struct LaneMeters {
    worker: WorkerId,
    corrupted: Counter,
    slow: Counter,
    lost: Counter,
    reconnected: Counter,
    /// The lanes that are taken.
    taken: HashMap<WorkerId, [Gauge; 2]>,
}

impl LaneMeters {
    pub(crate) fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            corrupted: declared::transfers_corrupted(worker),
            slow: declared::lane_slow(worker),
            lost: declared::agent_lost(worker),
            reconnected: declared::agent_reconnected(worker),
            taken: HashMap::new(),
        }
    }

    pub(crate) fn publish(&self, counts: &AgentCounts) {
        for (lane, reads) in counts.reads.iter().filter(|(_, reads)| reads.transfers > 0) {
            declared::transfers(self.worker, lane.name()).absolute(reads.transfers);
        }
        for (reason, count) in &counts.refused {
            declared::agent_refused(self.worker, reason.name()).absolute(*count);
        }
        self.corrupted.absolute(counts.corrupted);
        self.slow.absolute(counts.slow);
        self.lost.absolute(counts.lost);
        self.reconnected.absolute(counts.reconnected);
    }

    /// A lane was taken to a peer, in place of another if there was one.
    pub(crate) fn taken(&mut self, peer: WorkerId, status: &LaneStatus, passed_over: &str) {
        self.lost(peer);
        let lane = declared::lane_taken(self.worker, peer, status.lane.name());
        let reasons = declared::lane_passed_over(self.worker, peer, passed_over.to_owned());
        let gauges = [lane, reasons];
        gauges.iter().for_each(|gauge| gauge.set(1.0));
        self.taken.insert(peer, gauges);
    }

    /// A peer is not reached any more.
    pub(crate) fn lost(&mut self, peer: WorkerId) {
        self.taken.remove(&peer).iter().flatten().for_each(|gauge| gauge.set(0.0));
    }
}
