//! A span that is over, and its bytes.

use crate::generated as wire;
use domain::TraceContext;

/// Which part of Baton a span is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Service {
    /// The kind of process: `baton-router` or `baton-worker`.
    pub name: &'static str,
    /// Which one, if there are several: a worker's name.
    pub instance: String,
}

/// What was done for a request, and when.
#[derive(Clone, Debug)]
pub struct Span {
    /// The part of Baton that did it.
    pub service: Service,
    /// The trace, and the span's own id.
    pub context: TraceContext,
    /// The span that it is a part of; `None`: the trace begins with it.
    pub parent: Option<u64>,
    /// What was done.
    pub name: String,
    /// It answers what another process asked for.
    pub is_answer: bool,
    /// When it began, in nanoseconds since the Unix epoch.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What else is to be said.
    pub attributes: Vec<(&'static str, Value)>,
    /// What happened meanwhile.
    pub events: Vec<Event>,
    /// Why it failed, as a kind, if it did.
    pub error: Option<String>,
}

/// Something that happened during a span.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// What happened, in few words, which are the same for all spans.
    pub name: String,
    /// What else is to be said.
    pub attributes: Vec<(&'static str, Value)>,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Several texts.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Returns spans as the body of a request to a collector: grouped by the part of Baton that they are of.
pub(super) fn request(mut spans: Vec<Span>) -> wire::ExportTraceServiceRequest {
    spans.sort_by(|a, b| a.service.cmp(&b.service));
    let mut resource_spans = Vec::new();
    for of_one in spans.chunk_by(|a, b| a.service == b.service) {
        let Service { name, instance } = &of_one[0].service;
        let version = env!("CARGO_PKG_VERSION");
        let mut attributes = vec![("service.name", (*name).into()), ("service.version", version.into())];
        if !instance.is_empty() {
            attributes.push(("service.instance.id", instance.as_str().into()));
        }
        let scope = wire::InstrumentationScope { name: "baton".to_owned(), version: version.to_owned() };
        resource_spans.push(wire::ResourceSpans {
            resource: Some(wire::Resource { attributes: to_wire(&attributes) }),
            scope_spans: vec![wire::ScopeSpans {
                scope: Some(scope),
                spans: of_one.iter().map(span_to_wire).collect(),
            }],
        });
    }
    wire::ExportTraceServiceRequest { resource_spans }
}

fn span_to_wire(span: &Span) -> wire::Span {
    let kind = if span.is_answer { wire::span::SpanKind::Server } else { wire::span::SpanKind::Internal };
    let failed = |why: &String| wire::Status { message: why.clone(), code: wire::status::StatusCode::Error.into() };
    let event = |event: &Event| wire::span::Event {
        time_unix_nano: event.at_ns,
        name: event.name.clone(),
        attributes: to_wire(&event.attributes),
    };
    wire::Span {
        trace_id: span.context.trace.to_be_bytes().to_vec(),
        span_id: span.context.span.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.clone(),
        kind: kind.into(),
        start_time_unix_nano: span.begin_ns,
        end_time_unix_nano: span.end_ns.max(span.begin_ns),
        attributes: to_wire(&span.attributes),
        events: span.events.iter().map(event).collect(),
        status: span.error.as_ref().map(failed),
    }
}

fn to_wire(attributes: &[(&'static str, Value)]) -> Vec<wire::KeyValue> {
    let attribute = |(key, value): &(&str, Value)| wire::KeyValue {
        key: (*key).to_owned(),
        value: Some(wire::AnyValue { value: Some(value_to_wire(value)) }),
    };
    attributes.iter().map(attribute).collect()
}

fn value_to_wire(value: &Value) -> wire::any_value::Value {
    let text = |text: &String| wire::any_value::Value::StringValue(text.clone());
    match value {
        Value::Text(it) => text(it),
        Value::Number(number) => wire::any_value::Value::IntValue(*number),
        Value::Texts(texts) => {
            let values = texts.iter().map(|it| wire::AnyValue { value: Some(text(it)) }).collect();
            wire::any_value::Value::ArrayValue(wire::ArrayValue { values })
        }
    }
}
