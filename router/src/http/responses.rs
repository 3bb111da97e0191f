//! Responses that are kept: what a new one needs before it begins and at its end, and the paths to read and delete
//! them.

use super::app::App;
use super::bodies::Share;
use super::body;
use crate::dialects::openai::{Turn, check_include};
use crate::error::ApiError;
use crate::responses::{Record, Store, StoreError, new_id, owner};
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use keys::Key;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Most items of a page, and as many as one has where the client does not say.
const PAGE_ITEMS: (usize, usize) = (100, 20);
/// What an earlier response is named by.
const PREVIOUS: &str = "previous_response_id";

/// A response that is being made. What it is kept with counts among the bytes of bodies until its answer is over.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) turn: Turn,
    /// It goes on from no other.
    pub(super) is_first: bool,
    owner: String,
    _body: Option<Arc<body::Whole>>,
    _earlier: Option<Share>,
}

/// The conversation that a response goes on from.
#[derive(Default)]
struct Earlier {
    items: Vec<Value>,
    share: Option<Share>,
}

/// What has to be known of a body before it is parsed. All else is checked later.
#[derive(Debug, Default, Deserialize)]
struct Peek {
    previous_response_id: Option<String>,
    store: Option<bool>,
}

/// Adds the paths of responses that are kept.
pub(super) fn with(paths: Router<Arc<App>>) -> Router<Arc<App>> {
    paths
        .route("/v1/responses/{id}", get(read).delete(delete))
        .route("/v1/responses/{id}/cancel", post(cancel))
        .route("/v1/responses/{id}/input_items", get(input_items))
}

/// Begins the response that `body` asks for: reads the earlier one, and tries the store if this one is to be kept.
/// Errors: there is no such earlier response of this key, or the store fails.
pub(super) async fn begin(
    app: &App,
    body: &Arc<body::Whole>,
    is_quick: bool,
    key: Option<&Key>,
) -> Result<Making, ApiError> {
    let peek = if is_quick {
        peek(body)
    } else {
        let body = body.clone();
        let peeked = tokio::task::spawn_blocking(move || peek(&body)).await;
        peeked.map_err(|error| ApiError::internal(format!("Reading the request failed: {error}.")))?
    };
    let owner = owner(key);
    let earlier = match &peek.previous_response_id {
        Some(id) => earlier(app, id, &owner, body.len()).await?,
        None => Earlier::default(),
    };
    let store = app.responses.as_ref().filter(|_| peek.store != Some(false));
    if let Some(store) = store {
        let what = "The response could not be kept: send '\"store\": false' to get one that is not";
        store.ready().await.map_err(|error| failed(&error, what))?;
    }
    let id = new_id().map_err(|error| ApiError::internal(format!("There is no id for the response: {error}.")))?;
    let is_first = earlier.items.is_empty();
    let turn = Turn::new(id, earlier.items, app.responses.is_some());
    Ok(Making { turn, is_first, owner, _body: store.map(|_| body.clone()), _earlier: earlier.share })
}

/// Reads the conversation up to the end of the response `id`, for a body of so many bytes that goes on from it. Errors:
/// there is no such response, or the conversation becomes too long; or the store fails.
async fn earlier(app: &App, id: &str, owner: &str, body_bytes: usize) -> Result<Earlier, ApiError> {
    let none = || ApiError::no_previous_response(PREVIOUS, id);
    let told = |error: StoreError| match error {
        StoreError::Missing => none(),
        error => failed(&error, "The earlier response cannot be read now"),
    };
    let store = app.responses.as_ref().ok_or_else(none)?;
    let found = store.find(id).await.map_err(told)?;
    let (most, bytes) = (app.config.body_bytes_max as u64, found.bytes() + body_bytes as u64);
    let share = hold(app, found.bytes()).await?;
    let record = store.read(found, owner).await.map_err(told)?;
    if bytes > most {
        let message =
            format!("'{PREVIOUS}': the conversation has {bytes} bytes with its new items; {most} are allowed.");
        return Err(ApiError::field(PREVIOUS, message));
    }
    Ok(Earlier { items: record.conversation(), share: Some(share) })
}

/// Takes room for a response of so many bytes, which is to be read. Errors: there is none.
async fn hold(app: &App, bytes: u64) -> Result<Share, ApiError> {
    match app.bodies.hold(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(share) => Ok(share),
        Err(_) => Err(body::full(app).await),
    }
}

fn peek(body: &[u8]) -> Peek {
    serde_json::from_slice(body).unwrap_or_default()
}

impl Making {
    /// Keeps the response if it is over and to be kept. One that cannot be kept is told to the log: its client has the
    /// answer in any case.
    pub(super) async fn keep(&self, app: &App) {
        let Some((response, input)) = self.turn.take_over() else { return };
        let Some(store) = &app.responses else { return };
        let record = Record { owner: self.owner.clone(), response, input };
        let id = record.id().to_owned();
        if let Err(error) = store.keep(record).await {
            tracing::error!(response = id, %error, "a response is not kept");
        }
    }
}

/// Keeps the response before the last of its `events` is sent, so that a client that has it can go on from it.
pub(super) fn keep_at_end<E: Send + 'static>(
    making: Arc<Making>,
    app: Arc<App>,
    events: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, E>> + Send + 'static {
    events.then(move |event| {
        let (making, app) = (making.clone(), app.clone());
        async move {
            making.keep(&app).await;
            event
        }
    })
}

/// Tells the log why a store failed, and the client what that means.
fn failed(error: &StoreError, what: &str) -> ApiError {
    tracing::error!(%error, "the store of responses");
    ApiError::unavailable("store_unavailable", format!("{what}. The store of responses fails."))
}

/// Finds the store, and who asks.
fn asked<'a>(app: &'a App, headers: &HeaderMap, id: &str) -> Result<(&'a Store, String), ApiError> {
    let key = app.config.keys.find(headers)?;
    let store = app.responses.as_ref().ok_or_else(|| ApiError::no_response(id))?;
    Ok((store, owner(key.as_ref())))
}

/// Reads the response `id`, with the room that it takes.
async fn record(app: &App, headers: &HeaderMap, id: &str) -> Result<(Record, Share), ApiError> {
    let (store, owner) = asked(app, headers, id)?;
    let found = store.find(id).await.map_err(|error| told(&error, id))?;
    let share = hold(app, found.bytes()).await?;
    let record = store.read(found, &owner).await.map_err(|error| told(&error, id))?;
    Ok((record, share))
}

fn told(error: &StoreError, id: &str) -> ApiError {
    match error {
        StoreError::Missing => ApiError::no_response(id),
        StoreError::TooLarge { .. } | StoreError::Failed { .. } => failed(error, "The response cannot be read now"),
    }
}

/// Returns the parameters of a query. Errors: one is not among `known`.
fn parameters(query: Option<&str>, known: &[&str]) -> Result<Vec<(String, String)>, ApiError> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pair = |(name, value): (&str, &str)| (decoded(name).trim_end_matches("[]").to_owned(), decoded(value));
    let pairs: Vec<_> = pairs.map(|text| pair(text.split_once('=').unwrap_or((text, "")))).collect();
    match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        None => Ok(pairs),
        Some((name, _)) => Err(ApiError::unknown_field(name)),
    }
}

/// Answers `GET /v1/responses/{id}`: the response as it was.
async fn read(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let (record, _share) = record(&app, &headers, &id).await?;
    for (name, value) in parameters(query.as_deref(), &["include", "stream", "starting_after", "include_obfuscation"])?
    {
        match (name.as_str(), value.as_str()) {
            ("include", name) => check_include([name].into_iter())?,
            ("stream" | "include_obfuscation", "false") => {}
            _ => {
                let message = format!("'{name}' is not supported by this service: a response is read whole.");
                return Err(ApiError::unsupported(&name, message));
            }
        }
    }
    Ok(Json(record.response))
}

/// Answers `DELETE /v1/responses/{id}`. What went on from it stays.
async fn delete(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let (store, _) = asked(&app, &headers, &id)?;
    let _is_its_owner = record(&app, &headers, &id).await?;
    store.delete(&id).await.map_err(|error| told(&error, &id))?;
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}

/// Answers `POST /v1/responses/{id}/cancel`: only a response in the background can be cancelled, and there are none.
async fn cancel(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    record(&app, &headers, &id).await?;
    Err(ApiError::body("Cannot cancel a synchronous response: close its connection."))
}

/// Answers `GET /v1/responses/{id}/input_items`: a page of the items before the output, the newest first.
async fn input_items(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let (record, _share) = record(&app, &headers, &id).await?;
    let (most, mut limit) = PAGE_ITEMS;
    let (mut after, mut is_descending) = (None, true);
    for (name, value) in parameters(query.as_deref(), &["after", "include", "limit", "order"])? {
        match (name.as_str(), value.as_str()) {
            ("include", name) => check_include([name].into_iter())?,
            ("after", id) => after = Some(id.to_owned()),
            ("order", "asc") => is_descending = false,
            ("order", "desc") => is_descending = true,
            ("order", other) => {
                return Err(ApiError::field("order", format!("'order' is '{other}'; it must be asc or desc.")));
            }
            (_, limited) => match limited.parse() {
                Ok(number) if (1..=most).contains(&number) => limit = number,
                _ => {
                    let message = format!("'limit' must be between 1 and {most}, not '{limited}'.");
                    return Err(ApiError::field("limit", message));
                }
            },
        }
    }
    let mut items = record.input;
    if is_descending {
        items.reverse();
    }
    if let Some(after) = after {
        let Some(at) = items.iter().position(|item| item["id"] == after.as_str()) else {
            return Err(ApiError::field("after", format!("'after' is '{after}'; there is no such item.")));
        };
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let end = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first, last) = (end(items.first()), end(items.last()));
    Ok(Json(json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more })))
}
