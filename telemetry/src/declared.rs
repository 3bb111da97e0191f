//! How a metric is declared.

use metrics::Unit;

/// A metric, as declared.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Its meaning, for people.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Samples, counted in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

impl Declared {
    /// Describes the metric to the recorder of the process.
    pub(crate) fn describe(&self) {
        let help = self.help.trim();
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, self.unit, help),
            Kind::Gauge => metrics::describe_gauge!(self.name, self.unit, help),
            Kind::Histogram(_) => metrics::describe_histogram!(self.name, self.unit, help),
        }
    }
}
