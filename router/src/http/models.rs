//! The paths on which clients of Ollama's API ask which models there are.

use super::app::App;
use crate::config::ModelCard;
use crate::dialects::{ollama, refuse};
use crate::error::ApiError;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use domain::RequestId;
use domain::session::Served;
use serde_json::Value;
use std::sync::Arc;

/// Describes the model, by what workers serve and whether the client may ask it.
type Describe = fn(&ModelCard, Option<&Served>, bool) -> Value;

/// All of these paths.
const PATHS: [(&str, Describe); 3] =
    [("/api/tags", ollama::tags), ("/api/ps", ollama::running), ("/api/version", |_, _, _| ollama::version())];

/// Adds these paths.
pub(super) fn with(paths: Router<Arc<App>>) -> Router<Arc<App>> {
    PATHS.into_iter().fold(paths, |paths, (path, describe)| {
        let handler = move |app: State<Arc<App>>, uri: Uri, id: Extension<RequestId>, headers: HeaderMap| async move {
            answer(&app, describe, &headers).unwrap_or_else(|error| refuse(uri.path(), &error, *id))
        };
        paths.route(path, get(handler))
    })
}

fn answer(app: &App, describe: Describe, headers: &HeaderMap) -> Result<Response, ApiError> {
    let key = app.config.keys.find(headers)?;
    let may_ask = key.is_none_or(|key| key.may_ask(&app.card.name));
    Ok(Json(describe(&app.card, app.served().as_ref(), may_ask)).into_response())
}
