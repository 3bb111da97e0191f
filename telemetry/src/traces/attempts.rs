//! The spans of a worker: one for each attempt at a traced request, and below it one for each phase of it. What took
//! time is what routers are told, too.

use super::span::{Event, Service, Span, Value};
use super::{below, export, unix_ns};
use domain::{Epoch, Phase, PhaseKind, RequestId, TraceContext};
use std::time::Duration;

/// Events of an attempt that are told, the first ones.
const EVENTS_MAX: usize = 64;

/// An attempt that is traced. Times are told since it began.
#[derive(Clone, Debug)]
pub struct AttemptSpan {
    worker: String,
    request: RequestId,
    epoch: Epoch,
    part: &'static str,
    parent: TraceContext,
    own: TraceContext,
    /// In nanoseconds since the Unix epoch.
    begun_ns: u64,
    attributes: Vec<(&'static str, Value)>,
    events: Vec<Event>,
    error: Option<String>,
    /// Those of its phases.
    phases: Vec<Span>,
}

/// Begins the span of an attempt on a worker, whose `part` in the request is this, below `context`. `None`: it is not
/// traced.
pub fn attempt(
    worker: &str,
    request: RequestId,
    epoch: Epoch,
    part: &'static str,
    context: Option<TraceContext>,
) -> Option<AttemptSpan> {
    let parent = context.filter(|_| super::EXPORTER.get().is_some())?;
    Some(AttemptSpan {
        worker: worker.to_owned(),
        request,
        epoch,
        part,
        parent,
        own: below(parent),
        begun_ns: unix_ns(),
        attributes: Vec::new(),
        events: Vec::new(),
        error: None,
        phases: Vec::new(),
    })
}

impl AttemptSpan {
    /// Makes a span of each of these phases.
    pub fn phases(&mut self, phases: &[Phase]) {
        let spans: Vec<Span> = phases.iter().map(|phase| self.of_phase(phase)).collect();
        self.phases.extend(spans);
    }

    /// Notes that something happened.
    pub fn event(&mut self, at: Duration, name: &'static str) {
        if self.events.len() < EVENTS_MAX {
            let at_ns = self.at_ns(at);
            self.events.push(Event { at_ns, name: name.to_owned(), attributes: Vec::new() });
        }
    }

    /// Notes how many tokens of the prompt came from a source.
    pub fn tokens(&mut self, source: &str, tokens: u32) {
        if tokens > 0 {
            self.attributes.push((attribute_of_source(source), u64::from(tokens).into()));
        }
    }

    /// Notes why the attempt fails, as a kind.
    pub fn fails(&mut self, why: String) {
        self.error = Some(why);
    }

    /// Ends the span, and sends it with those of its phases.
    pub fn end(self, took: Duration) {
        let request = Value::Text(self.request.to_string());
        let names = [("baton.request", request), ("baton.epoch", u64::from(self.epoch.0).into())];
        let span = self.span(self.own, self.parent.span, self.part, Duration::ZERO, took);
        let mut spans = self.phases;
        spans.push(Span {
            is_answer: true,
            attributes: names.into_iter().chain(self.attributes).collect(),
            events: self.events,
            error: self.error,
            ..span
        });
        export(spans);
    }

    fn of_phase(&self, phase: &Phase) -> Span {
        let mut attributes: Vec<(&'static str, Value)> = Vec::new();
        let mut number = |name, value: u64| {
            if value > 0 {
                attributes.push((name, value.into()));
            }
        };
        number("baton.tokens", phase.tokens.into());
        number("baton.bytes", phase.bytes);
        if phase.parts > 1 {
            number("baton.parts", phase.parts.into());
        }
        if phase.kind == PhaseKind::Chunk {
            attributes.push(("baton.start", u64::from(phase.start).into()));
        }
        if !phase.layers.is_empty() {
            attributes.push(("baton.layer", u64::from(phase.layers.start).into()));
            attributes.push(("baton.layers", (phase.layers.len() as u64).into()));
        }
        let via = if phase.kind == PhaseKind::Load { "baton.tier" } else { "baton.lane" };
        for (name, value) in [(via, &*phase.via), ("baton.peer", &phase.peer)] {
            if !value.is_empty() {
                attributes.push((name, value.into()));
            }
        }
        let span = self.span(below(self.own), self.own.span, phase.kind.name(), phase.begin, phase.end());
        Span { attributes, ..span }
    }

    fn span(&self, context: TraceContext, parent: u64, name: &str, begin: Duration, end: Duration) -> Span {
        Span {
            service: Service { name: "baton-worker", instance: self.worker.clone() },
            context,
            parent: Some(parent),
            name: name.to_owned(),
            is_answer: false,
            begin_ns: self.at_ns(begin),
            end_ns: self.at_ns(end),
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        }
    }

    fn at_ns(&self, at: Duration) -> u64 {
        self.begun_ns.saturating_add(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Returns the attribute that has the number of a prompt's tokens of this source.
fn attribute_of_source(source: &str) -> &'static str {
    match source {
        "device" => "baton.tokens.device",
        "peer" => "baton.tokens.peer",
        "host" => "baton.tokens.host",
        "neighbours" => "baton.tokens.neighbours",
        "disk" => "baton.tokens.disk",
        "object" => "baton.tokens.object",
        _ => "baton.tokens.computed",
    }
}
