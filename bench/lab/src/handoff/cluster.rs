//! Processes that serve together, and the client that asks them one request at a time.

use super::timeline::{Events, Timeline};
use crate::processes::Process;
use bench_serve::{Api, Arrivals, BenchError, Record, Run, Settings, Shape, Spread, TokenIds};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use telemetry::timeline::monotonic_ns;

/// Times that a router is asked whether it serves by now.
const ATTEMPTS_MAX: usize = 300;
/// Time between two.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// A request that takes longer failed.
const REQUEST_MAX: Duration = Duration::from_secs(120);
/// Room for the prompts of a run; older ones are evicted.
const KV_BYTES: &str = "kv.device_bytes=256MiB";

/// What is started.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A prefill worker and a decode worker, over this lane and no other.
    Handoff(&'static str),
    /// A decode worker that computes prompts itself.
    Monolithic,
}

/// The processes; killed when dropped.
pub(super) struct Cluster {
    kind: Kind,
    /// Held for their end.
    _processes: Vec<Process>,
    url: String,
    runtime: tokio::runtime::Runtime,
    timelines: Vec<PathBuf>,
}

/// What a client saw of a request.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// When it was asked and when it was answered, in nanoseconds of the timelines' clock.
    pub(super) window: (u64, u64),
    /// Milliseconds to the first token.
    pub(super) ttft_ms: f64,
    /// Milliseconds from there to the second; none where one was asked for.
    pub(super) second_ms: Option<f64>,
}

impl Cluster {
    /// Starts it; `scratch` is where timelines go. Errors: a process does not start.
    pub(super) fn start(baton: &Path, model: &Path, scratch: &Path, kind: Kind) -> Result<Self, Box<dyn Error>> {
        let (name, roles): (_, &[_]) = match kind {
            Kind::Handoff(lane) => (lane, &["prefill", "decode"]),
            Kind::Monolithic => ("monolithic", &["decode"]),
        };
        let (mut processes, mut addresses, mut timelines) = (Vec::new(), Vec::new(), Vec::new());
        for role in roles {
            let timeline = scratch.join(format!("{name}-{role}.jsonl"));
            let mut command = Command::new(baton);
            command.arg(format!("{role}-worker")).arg("--model").arg(model).args(["--threads", "1", "--set", KV_BYTES]);
            command.args(["--name", role, "--listen", "127.0.0.1:0", "--log-level", "warn"]);
            command.arg("--set").arg(format!("log.timeline={}", timeline.display()));
            if let Kind::Handoff(lane) = kind {
                command.args(["--set", &format!("transport.lanes={lane}")]);
            }
            let (process, address) = Process::start(command)?;
            processes.push(process);
            addresses.push(address);
            timelines.push(timeline);
        }
        let mut command = Command::new(baton);
        command.arg("router").arg("--model").arg(model).args(["--workers", &addresses.join(",")]);
        command.args(["--listen", "127.0.0.1:0", "--log-level", "warn"]);
        command.args(["--set", "placement.handoff=always"]);
        let (process, address) = Process::start(command)?;
        processes.push(process);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { kind, _processes: processes, url: format!("http://{address}"), runtime, timelines })
    }

    /// Returns the lane between its workers.
    pub(super) fn lane(&self) -> &'static str {
        match self.kind {
            Kind::Handoff(lane) => lane,
            Kind::Monolithic => "none",
        }
    }

    /// Returns what the worker that computes prompts, and the worker that decodes, did so far; in a monolithic cluster
    /// they are one. Errors: a timeline cannot be read.
    pub(super) fn timeline(&self) -> Result<Timeline, Box<dyn Error>> {
        let (first, last) = self.timelines.first().zip(self.timelines.last()).ok_or("there are no workers")?;
        Ok(Timeline { prefill: Events::read(first)?, decode: Events::read(last)? })
    }

    /// Asks one thing and waits for all of the answer.
    pub(super) fn ask(&self, prompt: u32, answer: u32, seed: u64) -> Result<Asked, Box<dyn Error>> {
        self.runtime.block_on(async {
            let run = self.reach(prompt, answer, seed).await?;
            let begin = monotonic_ns();
            let (_, records) = run.measure().await;
            let window = (begin, monotonic_ns());
            let [record] = records.as_slice() else { return Err("there is not one answer".into()) };
            if let Some(failure) = &record.failure {
                return Err(format!("{}: {}", failure.kind(), failure.detail()).into());
            }
            let ttft_ms = record.ttft_sent_ms().ok_or("an answer without a token")?;
            Ok(Asked { window, ttft_ms, second_ms: second_ms(record) })
        })
    }

    /// Returns a run of one request, as soon as the router serves.
    async fn reach(&self, prompt: u32, answer: u32, seed: u64) -> Result<Run, BenchError> {
        let mut left = ATTEMPTS_MAX;
        loop {
            match Run::prepare(settings(&self.url, prompt, answer, seed)).await {
                Err(error) if left == 0 => return Err(error),
                Err(_) => tokio::time::sleep(ATTEMPT_PAUSE).await,
                Ok(run) => return Ok(run),
            }
            left -= 1;
        }
    }
}

fn settings(url: &str, prompt: u32, answer: u32, seed: u64) -> Settings {
    let tokens = |count: u32| Spread::constant(count.into());
    Settings {
        url: url.to_owned(),
        ca: None,
        model: None,
        api: Api::Completions,
        arrivals: Arrivals::Closed { concurrency: 1 },
        shape: Shape {
            input: tokens(prompt),
            output: tokens(answer),
            shared_prefix: 0,
            prefixes: 1,
            turns: 1,
            think: tokens(0),
        },
        requests: Some(1),
        duration: None,
        warmup: 0,
        seed,
        token_ids: TokenIds { low: 1000, high: 3999 },
        timeout: REQUEST_MAX,
        extra: serde_json::Map::new(),
        headers: Vec::new(),
        slo: None,
    }
}

fn second_ms(record: &Record) -> Option<f64> {
    record.gaps_us.first().map(|&gap| f64::from(gap) / 1e3)
}
