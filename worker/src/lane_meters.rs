//! The metrics of a worker's transport: what it counted, and which lane it took to whom.

use domain::WorkerId;
use metrics::{Counter, Gauge};
use std::collections::HashMap;
use telemetry::metrics as declared;
use transport::{AgentCounts, LaneStatus, Probe};

/// Handles of one worker.
pub(crate) struct LaneMeters {
    worker: WorkerId,
    corrupted: Counter,
    slow: Counter,
    short: Counter,
    lost: Counter,
    reconnected: Counter,
    /// The lanes that are taken.
    taken: HashMap<WorkerId, Taken>,
}

/// Handles of the lane that is taken to a peer.
struct Taken {
    /// 1 as long as it is taken.
    lane: Gauge,
    encrypted: Gauge,
    passed_over: Gauge,
    speed: Gauge,
    expected: Gauge,
    latency: Gauge,
}

impl LaneMeters {
    pub(crate) fn new(worker: WorkerId, name: &str) -> Self {
        declared::worker_name(worker, name.to_owned()).set(1.0);
        Self {
            worker,
            corrupted: declared::transfers_corrupted(worker),
            slow: declared::lane_slow(worker),
            short: declared::lane_short(worker),
            lost: declared::agent_lost(worker),
            reconnected: declared::agent_reconnected(worker),
            taken: HashMap::new(),
        }
    }

    /// Publishes what was counted, and by `pace` what reading from a peer costs.
    pub(crate) fn publish(&self, counts: &AgentCounts, pace: impl Fn(WorkerId) -> Option<Probe>) {
        for (lane, reads) in counts.reads.iter().filter(|(_, reads)| reads.transfers > 0) {
            declared::transfers(self.worker, lane.name()).absolute(reads.transfers);
        }
        for (reason, count) in &counts.refused {
            declared::agent_refused(self.worker, reason.name()).absolute(*count);
        }
        for (lane, rails) in &counts.rails {
            declared::rails(self.worker, lane.name(), "up").set(rails.up as f64);
            declared::rails(self.worker, lane.name(), "aside").set(rails.aside as f64);
        }
        for (reason, count) in &counts.rails_put_aside {
            declared::rails_put_aside(self.worker, reason.name()).absolute(*count);
        }
        declared::rails_returned(self.worker).absolute(counts.rails_returned);
        self.corrupted.absolute(counts.corrupted);
        self.slow.absolute(counts.slow);
        self.short.absolute(counts.short);
        self.lost.absolute(counts.lost);
        self.reconnected.absolute(counts.reconnected);
        for (&peer, taken) in &self.taken {
            if let Some(pace) = pace(peer) {
                taken.show(pace);
            }
        }
    }

    /// A lane was taken to a peer, in place of another if there was one.
    pub(crate) fn taken(&mut self, peer: WorkerId, status: &LaneStatus, passed_over: &str) {
        self.lost(peer);
        declared::worker_name(peer, status.peer.clone()).set(1.0);
        let (worker, lane) = (self.worker, status.lane.name());
        let taken = Taken {
            lane: declared::lane_taken(worker, peer, lane),
            encrypted: declared::lane_encrypted(worker, peer, lane),
            passed_over: declared::lane_passed_over(worker, peer, passed_over.to_owned()),
            speed: declared::lane_speed(worker, peer, lane),
            expected: declared::lane_expected(worker, peer, lane),
            latency: declared::lane_latency(worker, peer, lane),
        };
        taken.lane.set(1.0);
        taken.encrypted.set(f64::from(u8::from(status.tls)));
        taken.passed_over.set(1.0);
        taken.expected.set(status.expected_bytes_per_s.unwrap_or(0.0));
        taken.show(status.probe);
        self.taken.insert(peer, taken);
    }

    /// A peer is not reached any more.
    pub(crate) fn lost(&mut self, peer: WorkerId) {
        if let Some(taken) = self.taken.remove(&peer) {
            taken.lane.set(0.0);
            taken.encrypted.set(0.0);
            taken.passed_over.set(0.0);
            taken.expected.set(0.0);
            taken.show(Probe::default());
        }
    }
}

impl Taken {
    fn show(&self, pace: Probe) {
        self.speed.set(pace.bytes_per_s);
        self.latency.set(pace.latency_s);
    }
}
