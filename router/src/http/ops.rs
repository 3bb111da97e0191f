//! The metrics of a process that serves nothing else over HTTP: a worker.

use super::server::Server;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::convert::Infallible;
use std::time::Duration;
use telemetry::MetricsHandle;
use tokio::net::TcpListener;

/// Connections at once: those of scrapers, which are few.
const CONNECTIONS_MAX: usize = 16;
/// A scraper that takes nothing for so long is gone.
const WRITE_WAIT: Duration = Duration::from_secs(30);

/// Serves `/metrics` on `listener`, until dropped.
pub async fn serve_metrics(listener: TcpListener, metrics: MetricsHandle) -> Infallible {
    let app = Router::new().route("/metrics", get(async move || text(&metrics)));
    Server::new(listener, app, CONNECTIONS_MAX, WRITE_WAIT).accept().await
}

/// The metrics, as Prometheus reads them.
pub(super) fn text(metrics: &MetricsHandle) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render()).into_response()
}
