//! The timelines of a prefill worker and a decode worker, read from their files.

use serde::Deserialize;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A line. docs/reference/timeline.md says what the fields are.
#[derive(Deserialize, Debug)]
pub(super) struct Event {
    pub(super) at_ns: u64,
    pub(super) what: String,
    pub(super) request: Option<String>,
    pub(super) lease: Option<String>,
    pub(super) lane: Option<String>,
    pub(super) step: Option<u64>,
    pub(super) layer: Option<u16>,
    pub(super) samples: Option<u16>,
    pub(super) transfer: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) index: Option<u32>,
}

/// A stretch of time, in nanoseconds.
pub(super) type Span = (u64, u64);

/// What both workers did.
pub(super) struct Timeline {
    pub(super) prefill: Events,
    pub(super) decode: Events,
}

/// What one worker did, in the order of time.
pub(super) struct Events(Vec<Event>);

impl Events {
    /// Reads a timeline. Errors: the file cannot be read, or a line is none.
    pub(super) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut events = Vec::new();
        for line in BufReader::new(File::open(path)?).lines() {
            events.push(serde_json::from_str::<Event>(&line?)?);
        }
        // Threads take their stamps before they take their turns.
        events.sort_by_key(|event| event.at_ns);
        Ok(Self(events))
    }

    /// Returns all events of this name within the window.
    pub(super) fn all(&self, (from, to): Span, what: &str) -> Vec<&Event> {
        let begin = self.0.partition_point(|event| event.at_ns < from);
        let within = self.0[begin..].iter().take_while(|event| event.at_ns <= to);
        within.filter(|event| event.what == what).collect()
    }

    /// Returns from when to when the one prompt of `window` was computed: up to the step that samples its first token.
    pub(super) fn prompt(&self, window: Span) -> Result<Span, Box<dyn Error>> {
        let planned = self.all(window, "planned");
        let last = planned.iter().find(|event| event.samples > Some(0));
        let (first, last) = planned.first().zip(last).ok_or("no prompt was computed")?;
        Ok((self.step(window, first)?.0, self.step(window, last)?.1))
    }

    /// Returns the first event of this name within the window.
    pub(super) fn first(&self, window: Span, what: &str) -> Result<&Event, Box<dyn Error>> {
        self.all(window, what).into_iter().next().ok_or_else(|| format!("nothing was {what:?}").into())
    }

    /// Returns when the step of a plan began and ended.
    pub(super) fn step(&self, window: Span, planned: &Event) -> Result<Span, Box<dyn Error>> {
        let at = |what| {
            let all = self.all(window, what);
            all.iter().find(|event| event.step == planned.step).map(|event| event.at_ns)
        };
        at("step begins").zip(at("step ends")).ok_or_else(|| "a step has no begin or no end".into())
    }
}
