//! The timeline: what the parts of a worker did when, to the nanosecond, one JSON object a line, in a file.
//!
//! Its events are those of `tracing` with the target [`TARGET`], wherever they are in the code;
//! docs/reference/timeline.md lists them. Without a file no event is recorded, and each costs one comparison.
//!
//! What is deliberately absent: what the events mean together. Times are of the clock that all processes of a host
//! share, so the files of several workers can be compared line by line.

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The target of its events.
pub const TARGET: &str = "timeline";
/// A timeline that was forgotten does not fill the disk: it ends at this size.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Returns the time in nanoseconds of the monotonic clock, which all processes of a host share.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither part is ever negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes the process's timeline to a new file. Errors: it cannot be made.
pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(path: &Path) -> io::Result<impl Layer<S> + use<S>> {
    let lines = Mutex::new(Lines { file: File::create(path)?, room: FILE_BYTES_MAX });
    Ok(Timeline { lines }.with_filter(Targets::new().with_target(TARGET, LevelFilter::TRACE)))
}

struct Timeline {
    lines: Mutex<Lines>,
}

struct Lines {
    file: File,
    room: u64,
}

impl<S: Subscriber> Layer<S> for Timeline {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let at_ns = monotonic_ns();
        let mut line = Line(Map::new());
        line.0.insert("at_ns".to_owned(), at_ns.into());
        line.0.insert("thread".to_owned(), std::thread::current().name().into());
        event.record(&mut line);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).write(line.0);
    }
}

impl Lines {
    /// Writes a line at once, so that nothing is lost with the process.
    fn write(&mut self, line: Map<String, Value>) {
        let mut line = Value::Object(line).to_string();
        line.push('\n');
        self.room = self.room.saturating_sub(line.len() as u64);
        if self.room > 0 {
            // A disk that is full costs the timeline, not the worker; there is no log to complain to from in here.
            let _ = self.file.write_all(line.as_bytes());
        }
    }
}

/// The fields of an event. Its message says what happened.
struct Line(Map<String, Value>);

impl Line {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        let name = if field.name() == "message" { "what" } else { field.name() };
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    fn lines(room: u64, happens: impl FnOnce()) -> Vec<Value> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("timeline");
        let file = File::create(&path).expect("a file");
        let layer = Timeline { lines: Mutex::new(Lines { file, room }) };
        let layer = layer.with_filter(Targets::new().with_target(TARGET, LevelFilter::TRACE));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), happens);
        let text = std::fs::read_to_string(&path).expect("it is text");
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }

    #[test]
    fn events_are_lines_with_their_fields_in_the_order_of_time() {
        let before = monotonic_ns();
        let lines = lines(FILE_BYTES_MAX, || {
            tracing::trace!(target: TARGET, step = 3, layer = 0, "layer written");
            tracing::error!("the log's own affair");
            tracing::trace!(target: TARGET, worker = "a \"b\"", request = %7, step = None::<u64>, "token sent");
        });
        let [first, second] = lines.as_slice() else { panic!("two lines: {lines:?}") };
        assert_eq!((&first["what"], &first["step"], &first["layer"]), (&"layer written".into(), &3.into(), &0.into()));
        assert_eq!((&second["worker"], &second["request"]), (&"a \"b\"".into(), &"7".into()));
        assert!(second.get("step").is_none() && second["thread"].is_string());
        let at = |line: &Value| line["at_ns"].as_u64().expect("a time");
        assert!(before <= at(first) && at(first) <= at(second) && at(second) <= monotonic_ns());
    }

    #[test]
    fn a_timeline_that_is_full_takes_nothing_more() {
        let lines = lines(300, || (0..100).for_each(|step| tracing::trace!(target: TARGET, step, "step begins")));
        assert!((1..100).contains(&lines.len()), "{} lines", lines.len());
        assert!(lines.iter().enumerate().all(|(at, line)| line["step"] == at));
    }
}
