//! What `/metrics` says, and what must hold there when nothing is under way.

use crate::http::{Connection, request};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One sample: the name with its labels, as Prometheus writes it, apart.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    value: f64,
}

/// A KV pool: worker and group.
pub(crate) type Pool = (String, String);

/// All samples of one reading.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) samples: Vec<Sample>,
}

impl Sample {
    /// Whether one of its labels has this value.
    pub(crate) fn names(&self, value: &str) -> bool {
        self.labels.values().any(|label| label == value)
    }
}

impl Metrics {
    /// What the worker says whose metrics are at this address.
    pub(crate) fn at(worker: SocketAddr) -> Self {
        let mut connection = Connection::open(worker).expect("the worker listens");
        connection.send(&request("GET", "/metrics", "application/json", b"")).expect("it reads");
        Self::parse(connection.answer().expect("it answers").text())
    }

    /// Reads Prometheus' text format. Panics on a line that is not in it.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { samples: lines.map(sample).collect() }
    }

    /// The sum of the samples called `name` that have all `labels`.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.named(name)
            .filter(|sample| labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|it| it == value)))
            .map(|sample| sample.value)
            .sum()
    }

    /// Blocks of every pool, over all states.
    pub(crate) fn pools(&self) -> BTreeMap<Pool, f64> {
        self.blocks(&["free", "filling", "in_use", "cached"])
    }

    /// Number of workers whose session is up.
    pub(crate) fn workers(&self) -> usize {
        self.named("baton_worker_up").filter(|sample| sample.value == 1.0).count()
    }

    /// What keeps the service from being at rest with `pools` whole: nothing, or a list for people.
    pub(crate) fn unrest(&self, pools: &BTreeMap<Pool, f64>) -> Vec<String> {
        let mut found = Vec::new();
        let idle = self.blocks(&["free", "cached"]);
        if idle != *pools {
            found.push(format!("free and cached blocks {idle:?}, pools {pools:?}"));
        }
        let gauges = [
            "baton_requests_open",
            "baton_leases_live",
            "baton_waiting_sequences",
            "baton_running_sequences",
            "baton_waiting_tokens",
        ];
        found.extend(
            gauges
                .map(|name| (name, self.sum(name, &[])))
                .iter()
                .filter(|(_, value)| *value != 0.0)
                .map(|(name, value)| format!("{name} {value}")),
        );
        found
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    fn blocks(&self, states: &[&str]) -> BTreeMap<Pool, f64> {
        let mut blocks = BTreeMap::new();
        for sample in self.named("baton_kv_blocks").filter(|sample| states.contains(&sample.labels["state"].as_str())) {
            *blocks.entry((sample.labels["worker"].clone(), sample.labels["group"].clone())).or_default() +=
                sample.value;
        }
        blocks
    }
}

fn sample(line: &str) -> Sample {
    let parse = || {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let mut pairs = BTreeMap::new();
        // A value may be a sentence, with commas; quotes are in none.
        for pair in labels.strip_suffix('}')?.split_terminator('"').collect::<Vec<_>>().chunks(2) {
            let [key, value] = pair else { return None };
            pairs.insert(key.trim_start_matches(',').strip_suffix('=')?.to_owned(), (*value).to_owned());
        }
        Some(Sample { name: name.to_owned(), labels: pairs, value: value.parse().ok()? })
    };
    parse().unwrap_or_else(|| panic!("no line of Prometheus' text format: {line:?}"))
}
