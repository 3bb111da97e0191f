//! One line of the log for each request, at its end: which request it was, what it took, and where it was served. If
//! it is traced, also its spans.
//!
//! A request is over when its [`Access`] is dropped for the last time. The handler that answers it holds one, and so
//! does the record of each of its prompts. So the line comes once, however the request ends: also when its client hung
//! up, or when no worker ever had it.
//!
//! What is deliberately absent: prompts, answers, keys, and the words of errors, which may repeat what the client sent.

use crate::clock::Clock;
use crate::dialects::Dialect;
use crate::error::ApiError;
use crate::open_requests::{OpenRequest, OpenRequests, Stage};
use crate::record::Record;
use crate::traced::{Told, Trace};
use axum::http::StatusCode;
use domain::{RequestId, Time, TraceContext};
use keys::Key;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use telemetry::metrics::Outcome;
use tracing::Level;

/// The name that a client gave its request.
#[derive(Clone, Debug)]
pub(crate) struct ClientName(pub(crate) Arc<str>);

/// What the log will say of one HTTP request.
#[derive(Debug)]
pub(crate) struct Access {
    id: RequestId,
    /// What its client calls it.
    client: Option<ClientName>,
    dialect: &'static dyn Dialect,
    model: String,
    clock: Clock,
    arrived: Time,
    trace: Option<Trace>,
    known: Mutex<Known>,
    open: OpenRequest,
}

/// What is known by and by.
#[derive(Debug, Default)]
struct Known {
    tenant: String,
    /// When its tokens were made.
    tokenizing: Option<(Time, Time)>,
    /// The status of the answer.
    status: Option<u16>,
    /// Why it was refused or failed, as a kind.
    refused: Option<(Outcome, Option<&'static str>)>,
    /// Its prompts that are over.
    prompts: Vec<Arc<Record>>,
}

impl Access {
    /// Begins with a request in `dialect`, which arrives now. It is among `all` that are open until it is over.
    pub(crate) fn begin(
        (id, client): (RequestId, Option<ClientName>),
        dialect: &'static dyn Dialect,
        model: String,
        clock: Clock,
        trace: Option<Trace>,
        all: &OpenRequests,
    ) -> Arc<Self> {
        let arrived = clock.now();
        let open = all.begin(id, arrived);
        Arc::new(Self { id, client, dialect, model, clock, arrived, trace, known: Mutex::default(), open })
    }

    /// Returns the id that the client knows.
    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    fn client_request(&self) -> Option<&str> {
        self.client.as_ref().map(|name| &*name.0)
    }

    /// Returns the time since the request arrived.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now().since(self.arrived)
    }

    /// Returns when the request arrived.
    pub(crate) fn arrived(&self) -> Time {
        self.arrived
    }

    /// Returns the request's place in its trace, if it is traced.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.trace.map(|trace| trace.own)
    }

    /// Notes how far the request is.
    pub(crate) fn reaches(&self, stage: Stage) {
        self.open.reaches(stage);
    }

    /// Notes the key that the request showed.
    pub(crate) fn shows(&self, key: &Key) {
        key.tenant().clone_into(&mut self.known().tenant);
    }

    /// Notes when the request's body was parsed and its tokens were made.
    pub(crate) fn tokenized(&self, begun: Time, ended: Time) {
        self.known().tokenizing = Some((begun, ended));
    }

    /// Returns when that was.
    pub(crate) fn tokenizing(&self) -> Option<(Time, Time)> {
        self.known().tokenizing
    }

    /// Notes that the request is refused, or failed.
    pub(crate) fn refused(&self, error: &ApiError) {
        self.known().refused = Some((error.outcome(), error.code()));
    }

    /// Notes the status of the answer.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.known().status = Some(status.as_u16());
    }

    /// Notes what came of one of the request's prompts.
    pub(crate) fn prompt_over(&self, record: Arc<Record>) {
        self.reaches(Stage::Answered);
        self.known().prompts.push(record);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if tracing::enabled!(Level::INFO) {
            self.tell();
        }
        if let Some(trace) = self.trace {
            self.export(trace);
        }
    }
}

impl Access {
    /// Writes the line. Of a request with several prompts it has the sums of tokens, the earliest times, and the
    /// workers of the first prompt.
    fn tell(&self) {
        let Known { tenant, status, refused, prompts, .. } = &*self.known();
        let since = |time: Option<Time>| time.map(|time| ms(time.since(self.arrived)));
        let usages = || prompts.iter().filter_map(|record| record.ended.map(|(_, usage)| usage));
        let last = prompts.first().and_then(|record| record.placements.back());
        tracing::info!(
            request = %self.id,
            client_request = self.client_request(),
            tenant,
            model = self.model,
            path = self.dialect.path(),
            status,
            outcome = outcome(prompts, *refused, *status).name(),
            code = refused.and_then(|(_, code)| code),
            prompt_tokens = prompts.iter().map(|record| u64::from(record.prompt_tokens)).sum::<u64>(),
            cached_tokens = usages().map(|usage| u64::from(usage.cached_tokens)).sum::<u64>(),
            output_tokens = usages().map(|usage| u64::from(usage.output_tokens)).sum::<u64>(),
            queue_ms = since(prompts.iter().filter_map(|record| record.submitted).min()),
            first_token_ms = since(prompts.iter().filter_map(|record| Some(record.first?.0)).min()),
            total_ms = ms(self.clock.now().since(self.arrived)),
            prefill = prompts.first().and_then(|record| record.prefill_name()),
            decode = last.map(|placed| &*placed.decode_name),
            "request over"
        );
    }

    /// Sends the request's spans.
    fn export(&self, trace: Trace) {
        let Known { tenant, status, refused, prompts, .. } = &*self.known();
        let told = Told {
            id: self.id,
            client_request: self.client_request(),
            dialect: self.dialect,
            model: &self.model,
            tenant,
            arrived: self.arrived,
            ended: self.clock.now(),
            status: *status,
            outcome: outcome(prompts, *refused, *status),
            code: refused.and_then(|(_, code)| code),
            prompts,
        };
        trace.export(&told, |time| self.clock.unix_ns(time));
    }
}

/// Returns how the request ended: as the first of its prompts that did not end regularly, if there is one. A request
/// without a prompt was refused, asked for nothing and has an answer, or its client hung up before.
fn outcome(prompts: &[Arc<Record>], refused: Option<(Outcome, Option<&str>)>, status: Option<u16>) -> Outcome {
    let all = || prompts.iter().filter_map(|record| record.outcome);
    let irregular = all().find(|outcome| !matches!(outcome, Outcome::Stop | Outcome::Length));
    let without = match status {
        Some(200) => Outcome::Stop,
        _ => Outcome::Client,
    };
    irregular.or(all().next()).or(refused.map(|(outcome, _)| outcome)).unwrap_or(without)
}

/// Returns milliseconds with three decimals.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}
