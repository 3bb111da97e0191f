//! The metrics of a worker that is a process of its own. A router serves its own among its paths.

use telemetry::MetricsHandle;
use tokio::net::TcpListener;

/// Keeps the metrics of this process, and serves them as `/metrics` on `listener` if there is one. Never ends by itself.
pub(super) async fn keep(metrics: MetricsHandle, listener: Option<TcpListener>) {
    let shown = metrics.clone();
    let serve = async {
        if let Some(listener) = listener {
            match router::serve_metrics(listener, shown).await {}
        }
    };
    tokio::join!(router::keep_up(&metrics), serve);
}
