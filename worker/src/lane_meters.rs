//! The metrics of a worker's transport: what it counted, and which lane it took to whom.

use domain::WorkerId;
use metrics::Counter;
use proto::admin;
use std::collections::BTreeMap;
use telemetry::lanes::Reasons;
use telemetry::{Series, metrics as declared};
use transport::{AgentCounts, Lane, LaneStatus, Probe, WhyPassed};

/// Handles of one worker.
pub(crate) struct LaneMeters {
    worker: WorkerId,
    corrupted: Counter,
    /// Messages of peers that the inbox had no room for.
    dropped: Counter,
    slow: Counter,
    short: Counter,
    lost: Counter,
    reconnected: Counter,
    /// The lanes that are taken.
    taken: BTreeMap<WorkerId, Taken>,
    /// The lanes that are passed over, and for how many peers.
    passed_over: BTreeMap<(Lane, WhyPassed), Series>,
    _name: Series,
}

/// What is shown of the lane that is taken to a peer, as long as it is.
struct Taken {
    speed: Series,
    latency: Series,
    status: LaneStatus,
    _shown: [Series; 4],
    _reasons: Reasons,
}

impl LaneMeters {
    pub(crate) fn new(worker: WorkerId, name: &str) -> Self {
        let name = declared::worker_name(worker, name.to_owned());
        name.set(1.0);
        Self {
            worker,
            corrupted: declared::transfers_corrupted(worker),
            dropped: declared::messages_dropped(worker, "inbox"),
            slow: declared::lane_slow(worker),
            short: declared::lane_short(worker),
            lost: declared::agent_lost(worker),
            reconnected: declared::agent_reconnected(worker),
            taken: BTreeMap::new(),
            passed_over: BTreeMap::new(),
            _name: name,
        }
    }

    /// Publishes what was counted, and by `speed` what reading from a peer costs.
    pub(crate) fn publish(&self, counts: &AgentCounts, speed: impl Fn(WorkerId) -> Option<Probe>) {
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
        self.dropped.absolute(counts.dropped_messages);
        self.slow.absolute(counts.slow);
        self.short.absolute(counts.short);
        self.lost.absolute(counts.lost);
        self.reconnected.absolute(counts.reconnected);
        for (&peer, taken) in &self.taken {
            if let Some(speed) = speed(peer) {
                taken.show(speed);
            }
        }
    }

    /// A lane was taken to a peer, in place of another if there was one.
    pub(crate) fn taken(&mut self, peer: WorkerId, status: &LaneStatus) {
        let (worker, lane) = (self.worker, status.lane.name());
        let reasons = status.passed_over.iter().map(|passed| (passed.lane.name(), passed.reason.clone())).collect();
        let [name, taken, encrypted, expected] = [
            declared::worker_name(peer, status.peer.clone()),
            declared::lane_taken(worker, peer, lane),
            declared::lane_encrypted(worker, peer, lane),
            declared::lane_expected(worker, peer, lane),
        ];
        name.set(1.0);
        taken.set(1.0);
        encrypted.set(f64::from(u8::from(status.tls)));
        expected.set(status.expected_bytes_per_s.unwrap_or(0.0));
        let taken = Taken {
            speed: declared::lane_speed(worker, peer, lane),
            latency: declared::lane_latency(worker, peer, lane),
            status: status.clone(),
            _shown: [name, taken, encrypted, expected],
            _reasons: Reasons::tell(worker, peer, reasons),
        };
        taken.show(status.probe);
        self.taken.insert(peer, taken);
        self.count_passed_over();
    }

    /// Shows nothing of a peer any more: it is not reached, has begun a new life, or has left.
    pub(crate) fn forget(&mut self, peer: WorkerId) {
        if self.taken.remove(&peer).is_some() {
            self.count_passed_over();
        }
    }

    /// Returns the name of a peer; of one that is not connected, its id.
    pub(crate) fn name_of(&self, peer: WorkerId) -> String {
        self.taken.get(&peer).map_or_else(|| peer.to_string(), |taken| taken.status.peer.clone())
    }

    /// Describes the lanes that this worker, of that name, takes. `speed` is what reading from a peer costs now.
    pub(crate) fn lanes(&self, name: &str, speed: impl Fn(WorkerId) -> Option<Probe>) -> Vec<admin::Lane> {
        let lane = |(&peer, taken): (&WorkerId, &Taken)| {
            let LaneStatus { peer: peer_name, lane, tls, staging, probe, expected_bytes_per_s, passed_over, .. } =
                &taken.status;
            let probe = speed(peer).unwrap_or(*probe);
            let passed_over = passed_over.iter();
            admin::Lane {
                worker: self.worker.0,
                worker_name: name.to_owned(),
                peer: peer.0,
                peer_name: peer_name.clone(),
                lane: lane.name().to_owned(),
                encrypted: *tls,
                staged: if staging.is_some() { staging.to_string() } else { String::new() },
                bytes_per_s: probe.bytes_per_s,
                latency_s: probe.latency_s,
                expected_bytes_per_s: *expected_bytes_per_s,
                passed_over: passed_over
                    .map(|passed| admin::PassedOver {
                        lane: passed.lane.name().to_owned(),
                        reason: passed.reason.clone(),
                    })
                    .collect(),
            }
        };
        self.taken.iter().map(lane).collect()
    }

    fn count_passed_over(&mut self) {
        let mut counts = BTreeMap::<_, u32>::new();
        for passed in self.taken.values().flat_map(|taken| &taken.status.passed_over) {
            *counts.entry((passed.lane, passed.why)).or_default() += 1;
        }
        self.passed_over.retain(|passed, _| counts.contains_key(passed));
        for ((lane, why), count) in counts {
            let series = || declared::lane_passed_over(self.worker, lane.name(), why.name());
            self.passed_over.entry((lane, why)).or_insert_with(series).set(count.into());
        }
    }
}

impl Taken {
    fn show(&self, speed: Probe) {
        self.speed.set(speed.bytes_per_s);
        self.latency.set(speed.latency_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Encoding;
    use transport::PassedOver;

    #[test]
    fn however_many_peers_come_and_go_for_whatever_reasons_little_is_shown() {
        let metrics = telemetry::install();
        let worker = WorkerId(4_000_000);
        let mut meters = LaneMeters::new(worker, "many peers");
        let status = |life: u32| LaneStatus {
            peer: format!("pod-{life}"),
            lane: Lane::Tcp,
            tls: life.is_multiple_of(2),
            encoding: Encoding::Exact,
            staging: transport::Staging::default(),
            probe: Probe { bytes_per_s: 1e9, latency_s: 1e-5 },
            expected_bytes_per_s: None,
            passed_over: vec![
                PassedOver { lane: Lane::Shm, why: WhyPassed::Elsewhere, reason: "other process".to_owned() },
                PassedOver {
                    lane: Lane::Rdma,
                    why: WhyPassed::Unreached,
                    reason: format!("10.0.0.1:{life} is closed"),
                },
            ],
        };
        // Other tests of this process show theirs meanwhile.
        let (label, pair) = (format!("\"{worker}\""), format!("\"worker\":\"{worker}\""));
        let shown = || {
            let (text, words) = (metrics.render(), telemetry::lanes::render());
            let lines = text.lines().filter(|line| line.contains(&label) || line.contains("pod-")).count();
            let pairs = words.split("{\"passed_over\":").filter_map(|rest| Some(rest.split_once(&pair)?.0.len()));
            (lines, pairs.sum::<usize>(), text)
        };
        let (idle, words, _) = shown();
        meters.taken(WorkerId(5_000_000), &status(1_000_000));
        let (with_one, words_with_one, _) = shown();
        // Peers that come in many lives, of which the worker hears now that they are lost, and now that they are
        // there anew.
        for life in 1_000_000..1_002_000 {
            let peer = WorkerId(5_000_000 + life % 7);
            meters.taken(peer, &status(life));
            if life % 3 == 0 {
                meters.forget(peer);
            }
        }
        (0..7).for_each(|peer| meters.forget(WorkerId(5_000_000 + peer)));
        meters.taken(WorkerId(5_000_000), &status(1_002_000));
        let (now, words_now, text) = shown();
        assert_eq!((now, words_now), (with_one, words_with_one), "{text}");
        for (lane, reason) in [("shm", "elsewhere"), ("rdma", "unreached")] {
            let line = format!("baton_lane_passed_over{{worker=\"{worker}\",lane=\"{lane}\",reason=\"{reason}\"}} 1");
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        drop(meters);
        let (left, words_left, text) = shown();
        assert!(left <= idle && words_left == words, "{text}");
    }
}
