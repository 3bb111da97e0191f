//! A request that is over, as spans of OpenTelemetry: one for the whole, one for making its tokens, and one for the
//! time that each of its prompts waited for workers. Workers send spans of their own, below the first one.

use crate::dialects::Dialect;
use crate::record::Record;
use axum::http::HeaderMap;
use domain::{RequestId, Time, TraceContext};
use std::sync::Arc;
use telemetry::metrics::Outcome;
use telemetry::traces::{self, Event, Service, Span, Value};

/// The name of the header that tells of traces, in and out.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// The place of a request in its trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    /// The request's own span.
    pub(crate) own: TraceContext,
    parent: Option<u64>,
}

/// What the spans say of a request.
pub(crate) struct Told<'a> {
    pub(crate) id: RequestId,
    pub(crate) client_request: Option<&'a str>,
    pub(crate) dialect: &'static dyn Dialect,
    pub(crate) model: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) arrived: Time,
    pub(crate) ended: Time,
    pub(crate) status: Option<u16>,
    pub(crate) outcome: Outcome,
    pub(crate) code: Option<&'static str>,
    pub(crate) prompts: &'a [Arc<Record>],
}

impl Trace {
    /// Begins the trace of a request, or goes on with that of its client. `None`: it is not traced.
    pub(crate) fn begin(headers: &HeaderMap) -> Option<Self> {
        let header = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        traces::begin(header).map(|(own, parent)| Self { own, parent })
    }

    /// Sends the spans of a request. `at_ns` gives the time of day.
    pub(crate) fn export(self, told: &Told<'_>, at_ns: impl Fn(Time) -> u64) {
        let span = |context, parent, name: String, begin: Time, end: Time| Span {
            service: Service { name: "baton-router", instance: String::new() },
            context,
            parent,
            name,
            is_answer: false,
            begin_ns: at_ns(begin),
            end_ns: at_ns(end),
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        };
        let mut spans = Vec::with_capacity(2 + told.prompts.len());
        if let Some((begin, end)) = told.prompts.first().and_then(|record| record.tokenized) {
            let context = traces::below(self.own);
            spans.push(span(context, Some(self.own.span), "tokenize".to_owned(), begin, end));
        }
        for record in told.prompts {
            let until = record.submitted.or(record.ended.map(|(at, _)| at)).unwrap_or(told.ended);
            let context = traces::below(self.own);
            spans.push(span(context, Some(self.own.span), "queue".to_owned(), record.queued, until));
        }
        let name = format!("{} {}", told.dialect.operation(), told.model);
        spans.push(Span {
            is_answer: true,
            attributes: told.attributes(),
            events: told.prompts.iter().flat_map(|record| events(record, &at_ns)).collect(),
            error: told.error().filter(|_| told.is_fault()),
            ..span(self.own, self.parent, name, told.arrived, told.ended)
        });
        traces::export(spans);
    }
}

impl Told<'_> {
    fn attributes(&self) -> Vec<(&'static str, Value)> {
        let usages = || self.prompts.iter().filter_map(|record| record.ended.map(|(_, usage)| usage));
        let sum = |counts: &mut dyn Iterator<Item = u32>| Value::from(counts.map(u64::from).sum::<u64>());
        let finish = |outcome| matches!(outcome, Outcome::Stop | Outcome::Length).then(|| outcome.name().to_owned());
        let finishes = self.prompts.iter().filter_map(|record| record.outcome.and_then(finish)).collect();
        let mut attributes = vec![
            ("gen_ai.operation.name", self.dialect.operation().into()),
            ("gen_ai.provider.name", "baton".into()),
            ("gen_ai.request.model", self.model.into()),
            ("gen_ai.response.model", self.model.into()),
            ("gen_ai.response.id", Value::Text(self.dialect.answer_id(self.id))),
            ("gen_ai.response.finish_reasons", Value::Texts(finishes)),
            ("gen_ai.usage.input_tokens", sum(&mut self.prompts.iter().map(|record| record.prompt_tokens))),
            ("gen_ai.usage.cache_read.input_tokens", sum(&mut usages().map(|usage| usage.cached_tokens))),
            ("gen_ai.usage.output_tokens", sum(&mut usages().map(|usage| usage.output_tokens))),
            ("url.path", self.dialect.path().into()),
            ("baton.request", Value::Text(self.id.to_string())),
            ("baton.tenant", self.tenant.into()),
            ("baton.outcome", self.outcome.name().into()),
        ];
        attributes.extend(self.client_request.map(|name| ("baton.client_request", name.into())));
        attributes.extend(self.status.map(|status| ("http.response.status_code", u64::from(status).into())));
        attributes.extend(self.error().map(|error| ("error.type", Value::Text(error))));
        attributes
    }

    /// Returns whether the service is at fault, and not the client.
    fn is_fault(&self) -> bool {
        let fails = matches!(self.outcome, Outcome::Worker | Outcome::Deadline | Outcome::Us);
        fails || self.status.is_some_and(|status| status >= 500)
    }

    /// Returns why the request failed, if it did, as a kind. That its client hung up is no failure.
    fn error(&self) -> Option<String> {
        let is_well = matches!(self.outcome, Outcome::Stop | Outcome::Length | Outcome::Client);
        (!is_well).then(|| self.code.unwrap_or(self.outcome.name()).to_owned())
    }
}

/// Returns what happened to a prompt.
fn events(record: &Record, at_ns: impl Fn(Time) -> u64) -> Vec<Event> {
    let event = |at, name: &str| Event { at_ns: at_ns(at), name: name.to_owned(), attributes: Vec::new() };
    let placed = record.placements.iter().map(|placed| {
        let prefill = placed.prefill_name.as_deref().map(|name| ("baton.prefill", name.into()));
        let decode =
            [("baton.epoch", u64::from(placed.epoch.0).into()), ("baton.decode", (*placed.decode_name).into())];
        Event { attributes: decode.into_iter().chain(prefill).collect(), ..event(placed.at, "placed") }
    });
    let first = record.first.map(|(at, _)| event(at, "first token"));
    let taken_over = record.taken_over.map(|at| event(at, "taken over"));
    placed.chain(first).chain(taken_over).collect()
}
