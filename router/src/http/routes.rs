//! The paths, and those of them that are not about generation.

use super::app::App;
use super::cors::cors;
use super::generate::generate;
use super::identify::identify;
use super::shrink::shrink;
use super::{models, ops, pages, prompts, responses};
use crate::brain::Phase;
use crate::dialects::{self, Dialect, openai};
use crate::error::ApiError;
use admin::Browsers;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use domain::RequestId;
use serde_json::json;
use std::sync::Arc;

/// How gRPC calls its bodies.
const GRPC: &str = "application/grpc";
/// What a server that lacks a call answers. Clients of gRPC read nothing else: to them the API's port has no calls.
const GRPC_UNIMPLEMENTED: (&str, &str) = ("grpc-status", "12");

/// Returns all paths of the API's listener.
pub(crate) fn routes(app: Arc<App>) -> Router {
    let prompts = prompts::with(dialects::ALL.into_iter().fold(Router::new(), with));
    let api = responses::with(models::with(prompts))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn(shrink))
        .layer(cors(&app.config.cors_origins));
    let told = if app.config.metrics_on_api { told(&app.config.browsers) } else { probes() };
    let told = if app.config.chat_page { told.merge(pages::chat()) } else { told };
    told.method_not_allowed_fallback(no_method)
        .merge(api)
        .layer(from_fn_with_state(app.clone(), identify))
        .with_state(app)
}

/// Answers a method that a path does not take. What it takes, the header `Allow` says, also to `OPTIONS`.
async fn no_method(method: Method, uri: Uri, request: Extension<RequestId>) -> Response {
    if method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    dialects::refuse(uri.path(), &ApiError::no_method(method.as_str(), uri.path()), *request)
}

async fn no_path(method: Method, uri: Uri, request: Extension<RequestId>, headers: HeaderMap) -> Response {
    if headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes())) {
        return [(CONTENT_TYPE.as_str(), GRPC), GRPC_UNIMPLEMENTED].into_response();
    }
    dialects::refuse(uri.path(), &ApiError::no_path(method.as_str(), uri.path()), *request)
}

/// Returns the routes of operators and their tools, for a listener of their own: also those of the admin service, and
/// the console, which chats here because pages may ask their own port alone.
pub(crate) fn ops_routes(app: Arc<App>, operators: Router) -> Router {
    let browsers = app.config.browsers.clone();
    let talk = with(Router::new(), &openai::Chat)
        .route(models::LIST, get(models::list))
        .route_layer(from_fn_with_state(app.clone(), identify))
        .with_state(app.clone());
    let pages = browsers.guard_pages(pages::console());
    told(&browsers).with_state(app).merge(operators).merge(browsers.guard(talk)).merge(pages)
}

/// Adds the path of `dialect`.
fn with(paths: Router<Arc<App>>, dialect: &'static dyn Dialect) -> Router<Arc<App>> {
    paths.route(
        dialect.path(),
        post(move |State(app): State<Arc<App>>, request: Request| generate(app, dialect, request)),
    )
}

/// Returns the routes of probes, and of what the process tells about itself.
fn told(browsers: &Browsers) -> Router<Arc<App>> {
    let told = Router::new().route("/metrics", get(metrics)).route("/lanes", get(ops::lanes));
    probes().merge(told.route_layer(from_fn_with_state(browsers.reach().clone(), ops::readers)))
}

fn probes() -> Router<Arc<App>> {
    Router::new().route("/live", get(ops::live)).route("/ready", get(ready))
}

/// Returns whether requests can be served now, and by how many.
async fn ready(State(app): State<Arc<App>>) -> Response {
    let fleet = *app.fleet.borrow();
    let serving = *app.phase.borrow() == Phase::Serving;
    let why = match (serving, fleet.decode) {
        (false, _) => Some("shutting down"),
        (true, 0) => Some("no decode worker is up"),
        (true, _) => None,
    };
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let workers = json!({ "prefill": fleet.prefill, "decode": fleet.decode });
    (status, Json(json!({ "ready": why.is_none(), "why": why, "workers": workers }))).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let metrics = &app.metrics;
    ops::text(match app.config.vllm_aliases {
        true => metrics.render_with_aliases(&app.card.name),
        false => metrics.render(),
    })
}
