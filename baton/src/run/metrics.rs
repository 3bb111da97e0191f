//! The metrics of a worker that is a process of its own. A router serves its own among its paths.

use axum::Router;
use axum::routing::get;
use telemetry::MetricsHandle;
use tokio::net::TcpListener;

/// Keeps the metrics of this process, and serves them as `/metrics` on `listener` if there is one. Never ends by itself.
pub(super) async fn keep(metrics: MetricsHandle, listener: Option<TcpListener>) {
    let shown = metrics.clone();
    let serve = async {
        if let Some(listener) = listener {
            // It goes on after whatever happens to a connection.
            let _ = axum::serve(listener, Router::new().route("/metrics", get(async move || shown.render()))).await;
        }
    };
    tokio::join!(router::keep_up(&metrics), serve);
}
