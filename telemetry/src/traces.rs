//! Traces: what was done for a request, as spans of OpenTelemetry, sent to a collector over OTLP.
//!
//! - `span`: a span that is over, and its bytes.
//! - `export`: the queue, the batches, and the thread that sends them. Nothing waits for it: what does not fit is
//!   dropped and counted.
//! - `attempts`: the spans of a worker, made of the phases that routers are told, too.
//!
//! Each process sends its own spans, below the span that it was told. They are made when what they are about is over,
//! from times that are kept anyway. Without a collector nothing is kept for them.

mod attempts;
mod export;
mod span;

pub use attempts::{AttemptSpan, attempt};
pub use export::{Exporting, TraceError, set_sample, start};
pub use span::{Event, Service, Span, Value};

use domain::TraceContext;
use export::EXPORTER;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

/// Draws ids: a counter, hashed under a key that the operating system drew.
static DRAW: LazyLock<(RandomState, AtomicU64)> = LazyLock::new(Default::default);

/// Decides whether a request is traced. `traceparent` is the header of that name, if it came with one: its sender's
/// decision counts. Else a share of the requests is traced. Returns the context of the request's own span, and the
/// span's parent.
pub fn begin(traceparent: Option<&str>) -> Option<(TraceContext, Option<u64>)> {
    let exporter = EXPORTER.get()?;
    match traceparent.and_then(TraceContext::of_traceparent) {
        Some((above, true)) => Some((below(above), Some(above.span))),
        Some((_, false)) => None,
        None => {
            // 53 bits are what a float holds.
            let drawn = (draw() >> 11) as f64 / (1_u64 << 53) as f64;
            let trace = u128::from(draw()) << 64 | u128::from(draw());
            (drawn < exporter.sample()).then(|| (TraceContext { trace, span: draw() }, None))
        }
    }
}

/// Hands over spans that are over. Those that do not fit are dropped and counted.
pub fn export(spans: Vec<Span>) {
    if let Some(exporter) = EXPORTER.get() {
        exporter.take(spans);
    }
}

/// Returns the context of a new span below this one.
pub fn below(above: TraceContext) -> TraceContext {
    TraceContext { span: draw(), ..above }
}

/// Returns the time of day in nanoseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "spans of several hosts are compared by the time of day")]
pub fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a random number that is not 0.
fn draw() -> u64 {
    let (key, drawn) = &*DRAW;
    key.hash_one(drawn.fetch_add(1, Ordering::Relaxed)).max(1)
}

#[cfg(test)]
mod tests;
