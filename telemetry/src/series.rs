//! Series that are shown while a handle of them exists: of what comes and goes, such as peers.
//!
//! A recorder keeps every series that was ever touched. What has as many values as there ever were peers is kept
//! here instead.

use crate::declared::Declared;
use metrics::SharedString;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is shown, by the labels of the series, by metric.
type Shown = BTreeMap<&'static str, BTreeMap<String, Value>>;

/// A value, and how many handles of it there are.
#[derive(Default)]
struct Value {
    value: Arc<AtomicU64>,
    handles: usize,
}

static SHOWN: Mutex<Shown> = Mutex::new(BTreeMap::new());

/// A gauge whose series is shown until the last handle of it is dropped.
#[derive(Debug)]
pub struct Series {
    metric: &'static str,
    labels: String,
    value: Arc<AtomicU64>,
}

impl Series {
    pub(crate) fn new<const N: usize>(metric: &'static str, labels: [(&'static str, SharedString); N]) -> Self {
        let labels = labels.map(|(label, value)| format!("{label}=\"{}\"", escaped(&value))).join(",");
        let mut shown = shown();
        let shown = shown.entry(metric).or_default().entry(labels.clone()).or_default();
        shown.handles += 1;
        Self { metric, labels, value: shown.value.clone() }
    }

    /// Shows this value from now on.
    pub fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        let mut shown = shown();
        let Some(series) = shown.get_mut(self.metric) else { return };
        if let Some(shown) = series.get_mut(&self.labels) {
            shown.handles -= 1;
            if shown.handles == 0 {
                series.remove(&self.labels);
            }
        }
    }
}

/// Locks it. A panic while it was held left nothing half done.
fn shown() -> MutexGuard<'static, Shown> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a label's value as Prometheus reads it.
pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Adds all series, in the Prometheus text format, to `text`. `declared`: every metric there is.
pub(crate) fn render(text: &mut String, declared: &[Declared]) {
    let shown = shown();
    for Declared { name, help, .. } in declared {
        let Some(series) = shown.get(name).filter(|series| !series.is_empty()) else { continue };
        writeln!(text, "# HELP {name} {}\n# TYPE {name} gauge", help.trim()).expect("a text takes all");
        for (labels, Value { value, .. }) in series {
            let value = f64::from_bits(value.load(Ordering::Relaxed));
            writeln!(text, "{name}{{{labels}}} {value}").expect("a text takes all");
        }
        text.push('\n');
    }
}
