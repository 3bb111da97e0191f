//! The map: pairs of workers with what the metrics say of them.

use super::scrape::{Sample, samples};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use telemetry::metrics::name;

/// What is known of a cluster's lanes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Topology {
    /// Readers and owners, in the order of their names.
    pub(super) workers: Vec<String>,
    pub(super) reads: Vec<Reads>,
    /// Processes that were asked in vain.
    pub(super) failed: Vec<Failure>,
}

/// One worker that reads from another.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Reads {
    pub(super) reader: String,
    pub(super) owner: String,
    pub(super) lane: String,
    /// Whether what it brings is encrypted.
    pub(super) tls: bool,
    /// Lately, or by the probe.
    pub(super) gb_per_s: f64,
    /// What is expected of it: by the setting, or by what its ports promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expected_gb_per_s: Option<f64>,
    /// By the probe.
    pub(super) latency_us: f64,
    /// Each faster lane, the fastest by nature first.
    pub(super) passed_over: Vec<PassedOver>,
}

/// A lane that was not taken.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct PassedOver {
    pub(super) lane: String,
    pub(super) reason: String,
}

/// A process that does not answer.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    pub(super) url: String,
    pub(super) reason: String,
}

/// What was gathered so far, by the ids of workers.
#[derive(Default)]
pub(super) struct Map {
    names: HashMap<String, String>,
    pairs: BTreeMap<(String, String), Pair>,
}

#[derive(Default)]
struct Pair {
    lane: String,
    tls: bool,
    speed: HashMap<String, f64>,
    expected: HashMap<String, f64>,
    latency: HashMap<String, f64>,
    passed_over: Vec<PassedOver>,
}

/// Why a worker reads from a peer over no faster lane, as its process tells it.
#[derive(Deserialize)]
struct Reasons {
    worker: String,
    peer: String,
    passed_over: Vec<PassedOver>,
}

impl Map {
    /// Adds what one process says in its metrics and of its lanes. Errors: the latter cannot be read.
    pub(super) fn add(&mut self, metrics: &str, lanes: &str) -> io::Result<()> {
        let reasons: Vec<Reasons> = serde_json::from_str(lanes)?;
        // What is not so is told with 0.
        for sample in samples(metrics).filter(|sample| sample.value != 0.0) {
            self.take(sample);
        }
        for Reasons { worker, peer, passed_over } in reasons {
            self.pairs.entry((worker, peer)).or_default().passed_over = passed_over;
        }
        Ok(())
    }

    /// `None`: it is not of a worker's lanes.
    fn take(&mut self, sample: Sample<'_>) -> Option<()> {
        let label = |label: &str| sample.labels.get(label).cloned();
        let reader = label("worker")?;
        if sample.name == name::worker_name {
            self.names.insert(reader, label("name")?);
            return Some(());
        }
        let pair = self.pairs.entry((reader, label("peer")?)).or_default();
        match sample.name {
            name::lane_taken => pair.lane = label("lane")?,
            name::lane_encrypted => pair.tls = true,
            name::lane_speed => drop(pair.speed.insert(label("lane")?, sample.value)),
            name::lane_expected => drop(pair.expected.insert(label("lane")?, sample.value)),
            name::lane_latency => drop(pair.latency.insert(label("lane")?, sample.value)),
            _ => {}
        }
        Some(())
    }

    /// Returns the whole of it.
    pub(super) fn finish(self, failed: Vec<Failure>) -> Topology {
        let names = self.names;
        let name = |id: &String| names.get(id).unwrap_or(id).clone();
        let taken = self.pairs.into_iter().filter(|(_, pair)| !pair.lane.is_empty());
        let mut reads: Vec<Reads> = taken
            .map(|((reader, owner), pair)| Reads {
                reader: name(&reader),
                owner: name(&owner),
                gb_per_s: pair.speed.get(&pair.lane).unwrap_or(&0.0) / 1e9,
                expected_gb_per_s: pair.expected.get(&pair.lane).map(|expected| expected / 1e9),
                latency_us: pair.latency.get(&pair.lane).unwrap_or(&0.0) * 1e6,
                lane: pair.lane,
                tls: pair.tls,
                passed_over: pair.passed_over,
            })
            .collect();
        reads.sort_by(|one, other| (&one.reader, &one.owner).cmp(&(&other.reader, &other.owner)));
        let mut workers: Vec<String> =
            names.values().cloned().chain(reads.iter().flat_map(|it| [it.reader.clone(), it.owner.clone()])).collect();
        workers.sort();
        workers.dedup();
        Topology { workers, reads, failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECODE: &str = r#"
# HELP baton_lane_taken what
baton_worker_name{worker="w2",name="decode-1"} 1
baton_worker_name{worker="w1",name="prefill-1"} 1
baton_lane_taken{worker="w2",peer="w1",lane="tcp"} 1
baton_lane_encrypted{worker="w2",peer="w1",lane="tcp"} 1
baton_lane_passed_over{worker="w2",lane="rdma",reason="unreached"} 1
baton_lane_bytes_per_second{worker="w2",peer="w1",lane="tcp"} 2500000000
baton_lane_expected_bytes_per_second{worker="w2",peer="w1",lane="tcp"} 12500000000
baton_lane_latency_seconds{worker="w2",peer="w1",lane="tcp"} 0.00002
baton_steps{worker="w2"} 1
"#;

    const LANES: &str = r#"[{ "worker": "w2", "peer": "w1", "passed_over": [
        { "lane": "local", "reason": "other process" }, { "lane": "rdma", "reason": "a: down; b: down" }
    ] }]"#;

    #[test]
    fn what_metrics_say_is_one_map() {
        let mut map = Map::default();
        map.add(DECODE, LANES).expect("it can be read");
        assert!(map.add("", "not found").is_err());
        let topology = map.finish(Vec::new());
        assert_eq!(topology.workers, ["decode-1", "prefill-1"]);
        let passed_over = [("local", "other process"), ("rdma", "a: down; b: down")];
        let passed_over =
            passed_over.map(|(lane, reason)| PassedOver { lane: lane.to_owned(), reason: reason.to_owned() });
        let reads = Reads {
            reader: "decode-1".to_owned(),
            owner: "prefill-1".to_owned(),
            lane: "tcp".to_owned(),
            tls: true,
            gb_per_s: 2.5,
            expected_gb_per_s: Some(12.5),
            latency_us: 20.0,
            passed_over: passed_over.into(),
        };
        assert_eq!(topology.reads, [reads]);
    }
}
