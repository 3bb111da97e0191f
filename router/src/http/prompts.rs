//! The paths that read a body and generate nothing: tokens of prompts, texts of tokens, and what the model is.

use super::app::App;
use super::body;
use super::generate::admit;
use crate::dialects::{anthropic, detokenize, ollama, openai, refuse, tokenize};
use crate::error::ApiError;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use domain::RequestId;
use serde_json::Value;
use std::sync::Arc;

/// Answers a body. Takes time with its length.
type Read = fn(&[u8], &App) -> Result<Value, ApiError>;

/// All of these paths.
const PATHS: [(&str, Read); 5] = [
    ("/v1/messages/count_tokens", |body, app| anthropic::count_tokens(body, &app.card)),
    ("/api/show", |body, app| ollama::show(body, &app.card, app.served().as_ref())),
    ("/v1/chat/completions/render", |body, app| openai::render(body, &app.card, &app.limits()?)),
    ("/tokenize", |body, app| tokenize(body, &app.card, app.served().map(|served| served.context_tokens))),
    ("/detokenize", |body, app| detokenize(body, &app.card)),
];

/// Adds these paths.
pub(super) fn with(paths: axum::Router<Arc<App>>) -> axum::Router<Arc<App>> {
    PATHS.into_iter().fold(paths, |paths, (path, read)| {
        paths.route(path, post(move |State(app): State<Arc<App>>, request: Request| answer(app, read, request)))
    })
}

async fn answer(app: Arc<App>, read: Read, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let name: RequestId = *request.extensions().get().expect("every request has its id");
    match answered(&app, read, request).await {
        Ok(value) => Json(value).into_response(),
        Err(error) => refuse(&path, &error, name),
    }
}

async fn answered(app: &Arc<App>, read: Read, request: Request) -> Result<Value, ApiError> {
    let key = app.config.keys.find(request.headers())?;
    let _admission = admit(app, key.as_ref())?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, app).await?;
    // As many at once as prompts may be open.
    let Some(_place) = app.places.take(1) else {
        let most = app.places.most();
        return Err(app.overloaded(format!("{most} prompts are open, the most that this service takes.")).await);
    };
    let app = app.clone();
    let read = tokio::task::spawn_blocking(move || read(&body, &app)).await;
    read.map_err(|error| ApiError::internal(format!("Reading the request failed: {error}.")))?
}
