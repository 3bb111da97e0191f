//! The process's one recorder of metrics.

use crate::aliases;
use crate::metrics::{DECLARED, Kind};
use crate::series;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::fmt;
use std::sync::OnceLock;

static INSTALLED: OnceLock<MetricsHandle> = OnceLock::new();

/// Reads the metrics of this process.
#[derive(Clone)]
pub struct MetricsHandle(PrometheusHandle);

impl fmt::Debug for MetricsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsHandle(..)")
    }
}

impl MetricsHandle {
    /// Returns every metric that was used so far, and every series that has a handle, in the Prometheus text format.
    pub fn render(&self) -> String {
        let mut text = self.0.render();
        series::render(&mut text, DECLARED);
        text
    }

    /// Returns the same, and what gateways and autoscalers read under other names ([`crate::ALIASES`]) of a server of
    /// `model`.
    pub fn render_with_aliases(&self, model: &str) -> String {
        let mut text = self.render();
        aliases::render(&mut text, model);
        text
    }

    /// Folds the samples of histograms into their buckets. Call it every few seconds, so that a process whose metrics
    /// are never read does not grow.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

/// Makes the Prometheus recorder the process's recorder, with every metric described. Later calls give the same
/// handle. To be called before the first use of [`crate::metrics`]: handles taken earlier record nothing.
///
/// # Panics
///
/// If a foreign recorder was installed before: its owner would read metrics that never come.
pub fn install() -> MetricsHandle {
    INSTALLED
        .get_or_init(|| {
            let mut builder = PrometheusBuilder::new();
            for metric in DECLARED {
                if let Kind::Histogram(buckets) = metric.kind {
                    builder = builder
                        .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
                        .expect("declared buckets are not empty");
                }
            }
            let recorder = builder.build_recorder();
            let handle = MetricsHandle(recorder.handle());
            ::metrics::set_global_recorder(recorder).expect("this process has one recorder of metrics");
            for metric in DECLARED {
                metric.describe();
            }
            crate::metrics::build_info(env!("CARGO_PKG_VERSION")).set(1.0);
            handle
        })
        .clone()
}
