//! The way of spans to a collector: a bounded queue, batches, and one thread that sends them.

use super::span::{Span, request};
use crate::metrics;
use prost::Message;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use threads::Doing;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// Requests and attempts whose spans wait to be sent. Above: dropped and counted.
const QUEUE_MAX: usize = 1024;
/// Spans that are sent at once, and those of one more request or attempt.
const BATCH_SPANS: usize = 512;
/// Longest time that a span waits for others to be sent with.
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for a connection with the collector.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Longest wait for its answer. After it, the batch counts as dropped.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time that the last spans of a process have to be sent at its end.
const END_MAX: Duration = Duration::from_secs(2);

/// The process's exporter. Without one nothing is traced.
pub(super) static EXPORTER: OnceLock<Exporter> = OnceLock::new();

/// Why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The address is none of a collector.
    #[error("traces.endpoint: {0:?} is not an address such as http://127.0.0.1:4318")]
    Endpoint(String),
    /// The collector wants TLS, and this host has no certificates.
    #[error("traces.endpoint: this host has no certificates to check the collector's by: {0}")]
    Certificates(String),
    /// The system gives no thread.
    #[error("the thread that sends traces cannot be started")]
    Thread(#[from] std::io::Error),
}

pub(super) struct Exporter {
    /// Share of the requests that are traced, of those that come without a decision: the bits of a float.
    sample: AtomicU64,
    queue: SyncSender<Handed>,
}

/// What the thread is handed.
enum Handed {
    Spans(Vec<Span>),
    /// The process ends: an answer follows when all that came before is sent.
    End(SyncSender<()>),
}

/// Sends what waits when it is dropped, for as long as [`END_MAX`] allows.
#[derive(Debug)]
pub struct Exporting(());

/// Begins to trace, for the rest of the process's life: sends spans to the collector at `endpoint`, and decides that
/// the share `sample` of the requests is traced. To be called once, before the log is set up. Errors: [`TraceError`].
pub fn start(endpoint: &str, sample: f64) -> Result<Exporting, TraceError> {
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let agent = agent(endpoint)?;
    let (queue, handed) = sync_channel(QUEUE_MAX);
    threads::spawn("baton-traces".to_owned(), move || Sender { url, agent, fails: false }.run(&handed))?;
    // A second call would not be heard: the first one decides.
    let _ = EXPORTER.set(Exporter { sample: AtomicU64::new(sample.to_bits()), queue });
    Ok(Exporting(()))
}

/// Changes the share of the requests that is traced, if any are.
pub fn set_sample(sample: f64) {
    if let Some(exporter) = EXPORTER.get() {
        exporter.sample.store(sample.to_bits(), Ordering::Relaxed);
    }
}

impl Exporter {
    pub(super) fn sample(&self) -> f64 {
        f64::from_bits(self.sample.load(Ordering::Relaxed))
    }

    pub(super) fn take(&self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        if self.queue.try_send(Handed::Spans(spans)).is_err() {
            metrics::trace_spans("dropped").increment(count);
        }
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        let Some(exporter) = EXPORTER.get() else { return };
        let (done, is_done) = sync_channel(1);
        if exporter.queue.try_send(Handed::End(done)).is_ok() {
            // What is not sent by then is lost.
            let _ = is_done.recv_timeout(END_MAX);
        }
    }
}

/// The thread that sends.
struct Sender {
    url: String,
    agent: Agent,
    /// The last batch was not taken.
    fails: bool,
}

impl Sender {
    fn run(mut self, handed: &Receiver<Handed>) {
        while let Ok(first) = threads::during(Doing::WaitsForSpans, || handed.recv()) {
            let (spans, end) = batch(first, handed);
            if !spans.is_empty() {
                self.send(spans);
            }
            if let Some(end) = end {
                // A process that does not wait any more needs no answer.
                let _ = end.try_send(());
            }
        }
    }

    /// Sends a batch once: a collector that is away costs traces, and no memory.
    fn send(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let body = request(spans).encode_to_vec();
        let answer = self.agent.post(&self.url).header("content-type", "application/x-protobuf").send(&body);
        let failure = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("status {}", answer.status().as_u16())),
            Err(error) => Some(error.to_string()),
        };
        metrics::trace_spans(if failure.is_none() { "sent" } else { "dropped" }).increment(count);
        match (&failure, self.fails) {
            (Some(reason), false) => {
                tracing::warn!(url = self.url, reason, "the collector does not take traces; they are dropped");
            }
            (None, true) => tracing::info!(url = self.url, "the collector takes traces again"),
            _ => {}
        }
        self.fails = failure.is_some();
    }
}

/// Collects spans after the first ones, until there are enough, or for [`BATCH_WAIT`], or until the end.
#[expect(clippy::disallowed_methods, reason = "a thread of its own waits; nothing is decided by it")]
fn batch(first: Handed, handed: &Receiver<Handed>) -> (Vec<Span>, Option<SyncSender<()>>) {
    let (mut spans, mut next, until) = (Vec::new(), Ok(first), Instant::now() + BATCH_WAIT);
    loop {
        match next {
            Ok(Handed::Spans(more)) => spans.extend(more),
            Ok(Handed::End(done)) => return (spans, Some(done)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return (spans, None),
        }
        if spans.len() >= BATCH_SPANS {
            return (spans, None);
        }
        next = handed.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Makes the client of the collector.
fn agent(endpoint: &str) -> Result<Agent, TraceError> {
    let uri: Option<ureq::http::Uri> = endpoint.parse().ok();
    let scheme = uri.filter(|uri| uri.host().is_some()).and_then(|uri| uri.scheme_str().map(str::to_owned));
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(CONNECT_MAX))
        .timeout_global(Some(ANSWER_MAX))
        .user_agent(concat!("baton/", env!("CARGO_PKG_VERSION")));
    match scheme.as_deref() {
        Some("http") => Ok(config.build().new_agent()),
        Some("https") => Ok(config.tls_config(tls()?).build().new_agent()),
        _ => Err(TraceError::Endpoint(endpoint.to_owned())),
    }
}

/// Returns the settings of TLS, with the certificates that this host trusts.
fn tls() -> Result<TlsConfig, TraceError> {
    let found = rustls_native_certs::load_native_certs();
    if let (true, Some(error)) = (found.certs.is_empty(), found.errors.first()) {
        return Err(TraceError::Certificates(error.to_string()));
    }
    let roots: Vec<_> = found.certs.iter().map(|cert| Certificate::from_der(cert.as_ref()).to_owned()).collect();
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
