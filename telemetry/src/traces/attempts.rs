//! The spans of a worker. A worker says when an attempt of a traced request begins and ends; what happened meanwhile
//! are the events of the timeline, by the names of the worker and of the request.
//!
//! Events of attempts that are not traced cost one comparison while none is.

use super::span::{Event, Service, Span, Value};
use super::{below, export, unix_ns};
use crate::timeline::TARGET;
use domain::{Epoch, RequestId, TraceContext};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Attempts that are traced at once in this process. Above: not traced.
const OPEN_MAX: usize = 4096;
/// Parts of a prompt, reads and events, of each the first of an attempt. Above: not told.
const PARTS_MAX: usize = 128;

/// How many are open: what events look at first.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static TRACED: LazyLock<Mutex<Traced>> = LazyLock::new(Mutex::default);

/// The attempts that are traced, and the reads that belong to them.
#[derive(Default)]
struct Traced {
    open: HashMap<Name, Open>,
    /// Transfers of each worker are numbered.
    reads: HashMap<u64, Vec<Name>>,
}

/// A worker and a request, as events name them.
type Name = (String, String);

/// An attempt that is traced. It ends, and its spans are sent, when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub struct AttemptSpan {
    _ends: Arc<Ends>,
}

#[derive(Debug)]
struct Ends {
    name: Name,
    epoch: Epoch,
}

/// What is known of an attempt by and by. All times are in nanoseconds since the Unix epoch.
struct Open {
    epoch: Epoch,
    part: &'static str,
    parent: TraceContext,
    begun: u64,
    chunks: Vec<Chunk>,
    /// The prompt is computed, or was taken over; since when.
    decodes: Option<u64>,
    reads: Vec<Read>,
    attributes: Vec<(&'static str, Value)>,
    events: Vec<Event>,
}

/// A part of a prompt, as one step computes it.
struct Chunk {
    begun: u64,
    ended: Option<u64>,
    start: u64,
    tokens: u64,
}

/// A read from another worker.
struct Read {
    transfer: u64,
    begun: u64,
    ended: Option<u64>,
    ok: bool,
    lane: Option<String>,
    peer: Option<String>,
    bytes: u64,
    layers: Vec<Event>,
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
    let name = (worker.to_owned(), request.to_string());
    let open = Open {
        epoch,
        part,
        parent,
        begun: unix_ns(),
        chunks: Vec::new(),
        decodes: None,
        reads: Vec::new(),
        attributes: Vec::new(),
        events: Vec::new(),
    };
    let mut traced = traced();
    if let Some(epoch) = traced.open.get(&name).map(|open| open.epoch) {
        // An earlier attempt, which this one replaces.
        let open = traced.end(&name, epoch);
        export(open.map_or_else(Vec::new, |open| open.spans(&name, unix_ns())));
    }
    if traced.open.len() >= OPEN_MAX {
        return None;
    }
    traced.open.insert(name.clone(), open);
    OPEN.store(traced.open.len(), Ordering::Relaxed);
    Some(AttemptSpan { _ends: Arc::new(Ends { name, epoch }) })
}

impl Drop for Ends {
    fn drop(&mut self) {
        let ended = traced().end(&self.name, self.epoch);
        if let Some(open) = ended {
            export(open.spans(&self.name, unix_ns()));
        }
    }
}

/// Locks it. A panic while it was held left nothing half done.
fn traced() -> MutexGuard<'static, Traced> {
    TRACED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Traced {
    fn end(&mut self, name: &Name, epoch: Epoch) -> Option<Open> {
        // A later attempt on the same worker took its place.
        if self.open.get(name)?.epoch != epoch {
            return None;
        }
        let open = self.open.remove(name);
        OPEN.store(self.open.len(), Ordering::Relaxed);
        for read in open.iter().flat_map(|open| &open.reads) {
            if let Some(names) = self.reads.get_mut(&read.transfer) {
                names.retain(|it| it != name);
                if names.is_empty() {
                    self.reads.remove(&read.transfer);
                }
            }
        }
        open
    }

    /// Takes an event of the timeline.
    fn note(&mut self, now: u64, said: Said) {
        let name = match (said.text("worker"), said.text("request")) {
            (Some(worker), Some(request)) => (worker.to_owned(), request.to_owned()),
            // The transport names the transfer, on a thread of its worker.
            _ => match said.number("transfer").and_then(|transfer| self.reads.get(&transfer)).map(Vec::as_slice) {
                Some([name]) => name.clone(),
                Some(several) => {
                    let thread = std::thread::current();
                    let is_here = |(worker, _): &&Name| {
                        let rest = thread.name().and_then(|name| name.strip_prefix(worker.as_str()));
                        rest.is_some_and(|rest| rest.starts_with('-'))
                    };
                    let Some(name) = several.iter().find(is_here) else { return };
                    name.clone()
                }
                None => return,
            },
        };
        let Some(open) = self.open.get_mut(&name) else { return };
        if said.what == "read posted"
            && let Some(transfer) = said.number("transfer")
            && open.reads.len() < PARTS_MAX
        {
            self.reads.entry(transfer).or_default().push(name);
        }
        open.note(now, said);
    }
}

impl Open {
    fn note(&mut self, now: u64, said: Said) {
        let number = |field| said.number(field).unwrap_or(0);
        match said.what.as_str() {
            "planned" if self.decodes.is_none() && self.chunks.len() < PARTS_MAX => {
                let (start, tokens) = (number("start"), number("count"));
                self.chunks.push(Chunk { begun: now, ended: None, start, tokens });
            }
            "planned" | "token sent" => {}
            "prompt computed" => {
                if let Some(chunk) = self.chunks.last_mut() {
                    chunk.ended = Some(now);
                }
            }
            "prompt there" => {
                self.decodes.get_or_insert(now);
                for source in ["device", "peer", "host", "neighbours", "disk", "object", "computed"] {
                    if let Some(tokens) = said.number(source).filter(|tokens| *tokens > 0) {
                        self.attributes.push((source_name(source), tokens.into()));
                    }
                }
            }
            "read posted" if self.reads.len() < PARTS_MAX => self.reads.push(Read {
                transfer: number("transfer"),
                begun: now,
                ended: None,
                ok: false,
                lane: None,
                peer: None,
                bytes: 0,
                layers: Vec::new(),
            }),
            "read ended" | "slices begun" | "slices read" => {
                let transfer = number("transfer");
                if let Some(read) = self.reads.iter_mut().find(|read| read.transfer == transfer) {
                    read.note(now, &said);
                }
            }
            what => {
                if what == "taken over" {
                    self.decodes = Some(now);
                }
                if self.events.len() < PARTS_MAX {
                    self.events.push(Event { at_ns: now, name: said.what, attributes: Vec::new() });
                }
            }
        }
    }

    /// Makes the spans of the attempt, which ends now.
    fn spans(self, (worker, request): &Name, now: u64) -> Vec<Span> {
        let own = below(self.parent);
        let span = |context, parent, name: &str, begin_ns, end_ns| Span {
            service: Service { name: "baton-worker", instance: worker.clone() },
            context,
            parent: Some(parent),
            name: name.to_owned(),
            is_answer: false,
            begin_ns,
            end_ns,
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        };
        let child = |name: &str, begin, end| span(below(own), own.span, name, begin, end);
        let mut spans = Vec::new();
        if let Some(first) = self.chunks.first() {
            spans.push(child("queue", self.begun, first.begun));
        }
        for chunk in &self.chunks {
            let attributes = vec![("baton.start", chunk.start.into()), ("baton.tokens", chunk.tokens.into())];
            spans.push(Span { attributes, ..child("prefill chunk", chunk.begun, chunk.ended.unwrap_or(now)) });
        }
        for read in self.reads {
            let bytes = ("baton.bytes", Value::from(read.bytes));
            let lane = read.lane.map(|lane| ("baton.lane", Value::Text(lane)));
            let peer = read.peer.map(|peer| ("baton.peer", Value::Text(peer)));
            spans.push(Span {
                attributes: [bytes].into_iter().chain(lane).chain(peer).collect(),
                events: read.layers,
                error: (!read.ok).then(|| "not read".to_owned()),
                ..child("transfer", read.begun, read.ended.unwrap_or(now))
            });
        }
        // A worker that hands a prompt off decodes nothing of it.
        if let Some(decodes) = self.decodes.filter(|_| self.part != "prefill") {
            spans.push(child("decode steps", decodes, now));
        }
        let names = [("baton.request", Value::from(request.as_str())), ("baton.epoch", u64::from(self.epoch.0).into())];
        spans.push(Span {
            is_answer: true,
            attributes: names.into_iter().chain(self.attributes).collect(),
            events: self.events,
            ..span(own, self.parent.span, self.part, self.begun, now)
        });
        spans
    }
}

impl Read {
    fn note(&mut self, now: u64, said: &Said) {
        if said.what == "read ended" {
            (self.ended, self.ok) = (Some(now), said.text("ok") == Some("true"));
            return;
        }
        for (known, field) in [(&mut self.lane, "lane"), (&mut self.peer, "peer")] {
            if known.is_none() {
                *known = said.text(field).map(str::to_owned);
            }
        }
        if said.what == "slices read" {
            self.bytes += said.number("bytes").unwrap_or(0);
            if let Some(layer) = said.number("layer").filter(|_| self.layers.len() < PARTS_MAX) {
                let attributes = vec![("baton.layer", layer.into())];
                self.layers.push(Event { at_ns: now, name: "layer read".to_owned(), attributes });
            }
        }
    }
}

/// Returns the attribute that has the number of a prompt's tokens of this source.
fn source_name(source: &str) -> &'static str {
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

/// What an event says.
#[derive(Default)]
struct Said {
    what: String,
    texts: Vec<(&'static str, String)>,
    numbers: Vec<(&'static str, u64)>,
}

impl Said {
    fn text(&self, field: &str) -> Option<&str> {
        self.texts.iter().find(|(name, _)| *name == field).map(|(_, text)| text.as_str())
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.numbers.iter().find(|(name, _)| *name == field).map(|(_, number)| *number)
    }
}

impl Visit for Said {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.push((field.name(), value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.texts.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.what = format!("{value:?}"),
            name => self.texts.push((name, format!("{value:?}"))),
        }
    }
}

/// Listens to the timeline's events for attempts that are traced. `None`: nothing is traced in this process.
pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> Option<impl Layer<S> + use<S>> {
    let filter = Targets::new().with_target(TARGET, LevelFilter::TRACE);
    super::EXPORTER.get().map(|_| Listener.with_filter(filter))
}

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if OPEN.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (now, mut said) = (unix_ns(), Said::default());
        event.record(&mut said);
        traced().note(now, said);
    }
}
