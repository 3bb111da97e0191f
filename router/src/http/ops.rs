//! What operators and their tools ask of a process: `/live`, `/ready`, `/metrics`, `/lanes`, and the admin service.
//! Their listener is not the clients'.

use super::server::Server;
use admin::{Caller, Certified, Health};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use proto::tls::Port;
use std::convert::Infallible;
use std::time::Duration;
use telemetry::MetricsHandle;
use tokio::sync::watch;

/// Connections at once: those of probes and scrapers, which are few.
pub(crate) const OPS_CONNECTIONS_MAX: usize = 64;
/// A scraper that takes nothing for so long is gone.
pub(crate) const OPS_WRITE_WAIT: Duration = Duration::from_secs(30);

/// Serves `/live`, `/ready`, `/metrics`, `/lanes` and the admin service of a worker on `port`, until dropped.
/// `draining`: it takes nothing new.
pub async fn serve_ops(
    port: Port,
    metrics: MetricsHandle,
    mut draining: watch::Receiver<bool>,
    (operators, health): (Router, Health),
) -> Infallible {
    let is_draining = draining.clone();
    let ready = move || {
        let draining = *is_draining.borrow();
        let (status, text) =
            if draining { (StatusCode::SERVICE_UNAVAILABLE, "draining\n") } else { (StatusCode::OK, "ready\n") };
        std::future::ready((status, text))
    };
    let told = Router::new()
        .route("/metrics", get(async move || text(metrics.render())))
        .route("/lanes", get(lanes))
        .route_layer(from_fn(certified));
    let app = Router::new().route("/live", get(live)).route("/ready", get(ready)).merge(told).merge(operators);
    let server = Server::new(port, app, OPS_CONNECTIONS_MAX, OPS_WRITE_WAIT).with_http2();
    let tell = async {
        loop {
            let serves = !*draining.borrow_and_update();
            health.set(serves).await;
            if draining.changed().await.is_err() {
                // Its worker is over, and the process soon is.
                health.set(false).await;
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        never = server.accept() => never,
        never = tell => never,
    }
}

/// Refuses callers of other hosts that show no certificate to a port that asks for one. Probes have none, so not every
/// path is behind this.
pub(super) async fn certified(request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let is_here = extensions.get().is_some_and(Caller::is_here);
    if extensions.get() == Some(&Certified::No) && !is_here {
        return (StatusCode::FORBIDDEN, "show a certificate of an authority in tls.client_ca\n").into_response();
    }
    next.run(request).await
}

/// Answers that the process runs.
pub(super) async fn live() -> &'static str {
    "live\n"
}

/// Answers with the metrics, as Prometheus reads them.
pub(super) fn text(metrics: String) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics).into_response()
}

/// Answers why lanes to peers are passed over, in words.
pub(super) async fn lanes() -> Response {
    ([(CONTENT_TYPE, "application/json")], telemetry::lanes::render()).into_response()
}
