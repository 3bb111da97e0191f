//! What the records of a run mean.

mod table;

use crate::dialect::Found;
use crate::record::{Record, ms};
use crate::settings::{Arrivals, Settings};
use crate::summary::Summary;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A generator whose requests go out later than this (P99) measures itself, and says so.
const LATE_MS_MAX: f64 = 10.0;
/// Likewise one that is busy for a larger share of its core.
const BUSY_MAX: f64 = 0.8;
/// Lengths that differ by more from what was asked for are pointed out, as are events that carry more or fewer tokens.
const DEVIATION_MAX: f64 = 0.05;

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the generator.
    pub version: &'static str,
    /// What the server calls itself.
    pub server: Option<String>,
    /// The model that answered.
    pub model: String,
    /// What prompts were made of.
    pub prompts: String,
    /// What the run was asked to do.
    pub settings: Settings,
    /// Seconds from the first request to the end of the last.
    pub elapsed_s: f64,
    /// Why it ended before its time.
    pub stopped: Option<String>,
    /// Requests that succeeded.
    pub done: usize,
    /// Requests that failed.
    pub failed: usize,
    /// Requests that were in flight or waited when the run was stopped.
    pub abandoned: usize,
    /// Turns of conversations that were not sent because the one before failed.
    pub unsent: u64,
    /// Failed requests by kind, the most frequent first.
    pub failures: Vec<FailureCount>,
    /// Latencies and lengths of the requests that succeeded.
    pub figures: Figures,
    /// What the server did per second.
    pub throughput: Throughput,
    /// How many requests kept the limits; `None`: there were none.
    pub goodput: Option<Goodput>,
    /// How the generator itself did.
    pub generator: Generator,
    /// What a reader should know before trusting a figure.
    pub notes: Vec<String>,
}

/// Failures of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct FailureCount {
    /// Such as `timeout` or `http 429`.
    pub kind: String,
    /// Requests that failed so.
    pub count: usize,
    /// What was said about the first of them.
    pub example: String,
}

/// Latencies and lengths. `None`: there is no sample.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// From when a request was due to its first token.
    pub ttft_ms: Option<Summary>,
    /// From when it was sent to its first token.
    pub ttft_sent_ms: Option<Summary>,
    /// Every gap between two events with tokens, of all requests.
    pub itl_ms: Option<Summary>,
    /// Per request: its mean time per token after the first.
    pub tpot_ms: Option<Summary>,
    /// From when a request was due to its end.
    pub e2e_ms: Option<Summary>,
    /// From when it was sent to its end.
    pub e2e_sent_ms: Option<Summary>,
    /// Tokens of prompts, as the server counts.
    pub input_tokens: Option<Summary>,
    /// Tokens of answers, as the server counts.
    pub output_tokens: Option<Summary>,
    /// Tokens of prompts that the server had cached.
    pub cached_tokens: Option<Summary>,
}

/// What the server did per second, successful requests alone.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Requests.
    pub requests_per_s: f64,
    /// Tokens of prompts.
    pub input_tokens_per_s: f64,
    /// Tokens of answers.
    pub output_tokens_per_s: f64,
    /// Tokens of answers until the last request was sent: without the end of the run, at which ever fewer are in
    /// flight. `None` where that is less than half of the run.
    pub loaded_output_tokens_per_s: Option<f64>,
}

/// Requests that kept all limits.
#[derive(Clone, Debug, Serialize)]
pub struct Goodput {
    /// Their share of all that ended.
    pub share: f64,
    /// How many a second.
    pub requests_per_s: f64,
}

/// How the generator itself did.
#[derive(Clone, Debug, Serialize)]
pub struct Generator {
    /// How much later than due it was ready to send.
    pub late_ms: Option<Summary>,
    /// How long requests then waited because as many as allowed were in flight.
    pub held_ms: Option<Summary>,
    /// Processor time that it took.
    pub processor_s: f64,
    /// Its share of one core; it has one thread.
    pub busy: f64,
    /// Tokens that an event carries on average; `None`: the server does not count.
    pub tokens_per_event: Option<f64>,
}

/// What a run knows at its end besides records.
pub(crate) struct Outcome {
    pub(crate) elapsed: Duration,
    pub(crate) processor: Duration,
    pub(crate) unsent: u64,
    pub(crate) stopped: Option<String>,
    pub(crate) notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(settings: &Settings, found: &Found, outcome: Outcome, records: &[Record]) -> Self {
        let done: Vec<&Record> = records.iter().filter(|record| record.failure.is_none()).collect();
        let abandoned = records.iter().filter(|record| record.abandoned()).count();
        let end_us = records.iter().map(|record| record.end_us).max().unwrap_or(0);
        let elapsed_s = if end_us == 0 { outcome.elapsed.as_secs_f64() } else { end_us as f64 / 1e6 };
        let ended = records.len() - abandoned;
        let goodput = settings.slo.filter(|_| ended > 0).map(|slo| {
            let good = records.iter().filter(|record| slo.met_by(record)).count() as f64;
            Goodput { share: good / ended as f64, requests_per_s: good / elapsed_s }
        });
        let figures = Figures::of(&done);
        let generator = Generator::of(records, &done, outcome.processor.as_secs_f64(), elapsed_s);
        let mut report = Self {
            version: env!("CARGO_PKG_VERSION"),
            server: found.server.clone(),
            model: found.model.clone(),
            prompts: found.medium.to_string(),
            settings: settings.clone(),
            elapsed_s,
            stopped: outcome.stopped,
            done: done.len(),
            failed: ended - done.len(),
            abandoned,
            unsent: outcome.unsent,
            failures: failures(records),
            throughput: Throughput::of(&done, elapsed_s, generator.tokens_per_event),
            figures,
            goodput,
            generator,
            notes: outcome.notes,
        };
        report.notes.extend(report.doubts(&done));
        report
    }

    /// Returns whether every request that ended failed.
    pub fn all_failed(&self) -> bool {
        self.done == 0 && self.failed > 0
    }

    /// Returns whether latencies from when requests were due and from when they were sent are different things.
    pub fn is_open(&self) -> bool {
        !matches!(self.settings.arrivals, Arrivals::Closed { .. })
    }

    /// Returns whether no prompt begins like another.
    fn is_without_prefixes(&self) -> bool {
        let shape = &self.settings.shape;
        !matches!(self.settings.arrivals, Arrivals::Trace { .. }) && shape.shared_prefix == 0 && shape.turns == 1
    }

    /// Returns why a figure may not be what it seems.
    fn doubts(&self, done: &[&Record]) -> Vec<String> {
        let mut doubts = Vec::new();
        let late_ms = self.generator.late_ms.map_or(0.0, |late| late.p99);
        if late_ms > LATE_MS_MAX {
            doubts.push(format!(
                "the generator was late by {late_ms:.1} ms (P99): figures from \"due\" include it; give it a core, or \
                 spread the load over several"
            ));
        }
        if self.generator.busy > BUSY_MAX {
            let busy = self.generator.busy * 100.0;
            doubts
                .push(format!("the generator was busy {busy:.0}% of the time of its one thread: it may be the limit"));
        }
        if let Some(tokens) = self.generator.tokens_per_event.filter(|tokens| (tokens - 1.0).abs() > DEVIATION_MAX) {
            doubts.push(format!(
                "an event carries {tokens:.2} tokens on average: \"between tokens\" is between events; \"per token\" is right"
            ));
        }
        if let Some(cached) = self.figures.cached_tokens.filter(|_| self.is_without_prefixes())
            && let Some(input) = self.figures.input_tokens
            && cached.mean > input.mean * DEVIATION_MAX
        {
            doubts.push(format!(
                "{:.0}% of the input was cached though prompts have nothing in common: the server has seen them before; \
                 give another --seed",
                100.0 * cached.mean / input.mean
            ));
        }
        // With a history, the prompt is longer than what its last turn adds.
        let single = done.iter().filter(|record| record.turn == 0);
        let (mut asked, mut got) = (0, 0);
        for record in single {
            if let Some(input) = record.input_tokens {
                asked += u64::from(record.input_asked);
                got += input;
            }
        }
        if asked > 0 && (got as f64 / asked as f64 - 1.0).abs() > DEVIATION_MAX {
            let percent = 100.0 * got as f64 / asked as f64;
            doubts.push(format!("prompts have {percent:.0}% of the tokens that were asked for"));
        }
        doubts
    }
}

impl Figures {
    fn of(done: &[&Record]) -> Self {
        let of = |value: &dyn Fn(&Record) -> Option<f64>| {
            Summary::of(&mut done.iter().filter_map(|record| value(record)).collect::<Vec<_>>())
        };
        let gaps = done.iter().flat_map(|record| record.gaps_us.iter().map(|&gap| ms(gap.into())));
        Self {
            ttft_ms: of(&Record::ttft_ms),
            ttft_sent_ms: of(&Record::ttft_sent_ms),
            itl_ms: Summary::of(&mut gaps.collect::<Vec<_>>()),
            tpot_ms: of(&Record::tpot_ms),
            e2e_ms: of(&|record| Some(record.e2e_ms())),
            e2e_sent_ms: of(&|record| Some(record.e2e_sent_ms())),
            input_tokens: of(&|record| record.input_tokens.map(|tokens| tokens as f64)),
            output_tokens: of(&|record| record.output_tokens.map(|tokens| tokens as f64)),
            cached_tokens: of(&|record| record.cached_tokens.map(|tokens| tokens as f64)),
        }
    }
}

impl Throughput {
    fn of(done: &[&Record], elapsed_s: f64, tokens_per_event: Option<f64>) -> Self {
        let per_second = |sum: u64| if elapsed_s > 0.0 { sum as f64 / elapsed_s } else { 0.0 };
        let last_sent_us = done.iter().map(|record| record.sent_us).max().unwrap_or(0);
        let loaded_s = last_sent_us as f64 / 1e6;
        let loaded = (loaded_s > elapsed_s / 2.0).then(|| {
            let before = |record: &&Record| token_times(record).take_while(|&at| at <= last_sent_us).count();
            done.iter().map(before).sum::<usize>() as f64 * tokens_per_event.unwrap_or(1.0) / loaded_s
        });
        Self {
            requests_per_s: per_second(done.len() as u64),
            input_tokens_per_s: per_second(
                done.iter().map(|record| record.input_tokens.unwrap_or(record.input_asked.into())).sum(),
            ),
            output_tokens_per_s: per_second(
                done.iter().map(|record| record.output_tokens.unwrap_or(record.events())).sum(),
            ),
            loaded_output_tokens_per_s: loaded,
        }
    }
}

impl Generator {
    fn of(records: &[Record], done: &[&Record], processor_s: f64, elapsed_s: f64) -> Self {
        let sent: Vec<&Record> = records.iter().filter(|record| !record.abandoned()).collect();
        let waits = |wait: &dyn Fn(&Record) -> u64| {
            Summary::of(&mut sent.iter().map(|record| ms(wait(record))).collect::<Vec<_>>())
        };
        let (mut tokens, mut events) = (0, 0);
        for record in done {
            if let Some(output) = record.output_tokens {
                tokens += output;
                events += record.events();
            }
        }
        Self {
            late_ms: waits(&|record| record.ready_us.saturating_sub(record.due_us)),
            held_ms: waits(&|record| record.sent_us.saturating_sub(record.ready_us)),
            processor_s,
            busy: if elapsed_s > 0.0 { processor_s / elapsed_s } else { 0.0 },
            tokens_per_event: (events > 0).then(|| tokens as f64 / events as f64),
        }
    }
}

/// Returns when a request's events with tokens came, in microseconds.
pub(crate) fn token_times(record: &Record) -> impl Iterator<Item = u64> + '_ {
    let gaps = record.gaps_us.iter().scan(record.first_us.unwrap_or(0), |at, &gap| {
        *at += u64::from(gap);
        Some(*at)
    });
    record.first_us.into_iter().chain(gaps)
}

fn failures(records: &[Record]) -> Vec<FailureCount> {
    let mut kinds: BTreeMap<String, FailureCount> = BTreeMap::new();
    for failure in records.iter().filter(|record| !record.abandoned()).filter_map(|record| record.failure.as_ref()) {
        let kind = failure.kind();
        let new = || FailureCount { kind: kind.clone(), count: 0, example: failure.detail() };
        kinds.entry(kind.clone()).or_insert_with(new).count += 1;
    }
    let mut failures: Vec<FailureCount> = kinds.into_values().collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
    failures
}
