//! What operators and their tools ask of a process: `/live`, `/ready`, `/metrics`, `/lanes`, and the admin service.
//! Their listener is not the clients'.

use super::server::Server;
use admin::{Health, Reach};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
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
/// `draining`: it takes nothing new. `reach`: which callers may read more than the first two.
pub async fn serve_ops(
    port: Port,
    metrics: MetricsHandle,
    mut draining: watch::Receiver<bool>,
    reach: Reach,
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
        .route_layer(from_fn_with_state(reach, readers));
    let app = Router::new().route("/live", get(live)).route("/ready", get(ready)).merge(told).merge(operators);
    let server = Server::new(port, app, OPS_CONNECTIONS_MAX, OPS_WRITE_WAIT);
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

/// Refuses callers that `reach` does not let read. Probes show nothing, so not every path is behind this.
pub(super) async fn readers(State(reach): State<Reach>, request: Request, next: Next) -> Response {
    if reach.may_read(request.extensions(), request.headers()) {
        return next.run(request).await;
    }
    let why = match reach {
        Reach::Loopback => "show a certificate of an authority in tls.client_ca\n",
        Reach::Beyond(_) => "show a certificate of an authority in tls.client_ca, or the key of an operator\n",
    };
    (StatusCode::FORBIDDEN, why).into_response()
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
