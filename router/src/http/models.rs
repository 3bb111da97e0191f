//! The paths on which clients ask which models there are: OpenAI's, which Anthropic's clients ask too, and Ollama's.

use super::app::App;
use crate::config::ModelCard;
use crate::dialects::{anthropic, ollama, refuse};
use crate::error::ApiError;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use domain::RequestId;
use domain::session::Served;
use serde_json::{Value, json};
use std::sync::Arc;

/// Describes the model, by what workers serve and whether the client may ask it.
type Describe = fn(&ModelCard, Option<&Served>, bool) -> Value;

/// All of these paths.
const PATHS: [(&str, Describe); 3] =
    [("/api/tags", ollama::tags), ("/api/ps", ollama::running), ("/api/version", |_, _, _| ollama::version())];

/// The path of the list, in OpenAI's API and in Anthropic's.
pub(super) const LIST: &str = "/v1/models";
/// The path of one. A model's name may have slashes, as those of hubs do.
const ONE: &str = "/v1/models/{*name}";
/// The header that Anthropic's clients send.
const ANTHROPIC_VERSION: &str = "anthropic-version";

/// Adds these paths.
pub(super) fn with(paths: Router<Arc<App>>) -> Router<Arc<App>> {
    let paths = paths.route(LIST, get(list)).route(ONE, get(one));
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

/// Lists the models that the client may ask.
pub(super) async fn list(State(app): State<Arc<App>>, id: Extension<RequestId>, headers: HeaderMap) -> Response {
    let find = || -> Result<Value, ApiError> {
        let key = app.config.keys.find(&headers)?;
        let may_ask = key.is_none_or(|key| key.may_ask(&app.card.name));
        if headers.contains_key(ANTHROPIC_VERSION) {
            return Ok(anthropic::models(&app.card, may_ask));
        }
        let models: Vec<Value> = may_ask.then(|| describe(&app)).into_iter().collect();
        Ok(json!({ "object": "list", "data": models }))
    };
    told(find(), &headers, *id)
}

/// Describes one model.
async fn one(
    State(app): State<Arc<App>>,
    uri: Uri,
    id: Extension<RequestId>,
    headers: HeaderMap,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    let find = || {
        let key = app.config.keys.find(&headers)?;
        // A name that is not UTF-8 is none of ours.
        let Ok(Path(name)) = name else { return Err(ApiError::no_path(Method::GET.as_str(), uri.path())) };
        match key {
            _ if name != app.card.name => Err(ApiError::no_model(&name, &app.card.name)),
            Some(key) if !key.may_ask(&name) => Err(ApiError::forbidden_model(&name, &key.id())),
            _ if headers.contains_key(ANTHROPIC_VERSION) => Ok(anthropic::model(&app.card)),
            _ => Ok(describe(&app)),
        }
    };
    told(find(), &headers, *id)
}

/// Answers in the form of the client's API.
fn told(answer: Result<Value, ApiError>, headers: &HeaderMap, id: RequestId) -> Response {
    match answer {
        Ok(value) => Json(value).into_response(),
        Err(error) if headers.contains_key(ANTHROPIC_VERSION) => error.response(anthropic::error(&error, id)),
        Err(error) => error.into_response(),
    }
}

/// Describes the model as OpenAI does. If a worker was up, it has the longest context, and whether the devices of all
/// workers are batch-invariant.
fn describe(app: &App) -> Value {
    let served = app.served();
    json!({
        "id": app.card.name,
        "object": "model",
        "created": app.card.created,
        "owned_by": "baton",
        "max_model_len": served.map(|served| served.context_tokens),
        "batch_invariant": served.map(|served| served.batch_invariant),
    })
}
