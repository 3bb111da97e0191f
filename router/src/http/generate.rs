//! The paths that generate text, in any dialect: parse, hand to the brain, answer.
//!
//! Whatever stops a handler - the client's connection ended, at any moment - drops its [`Waiting`], and that is how the
//! brain learns that the client is gone.

use super::app::App;
use super::body;
use super::connections::{Admitted, Connection};
use super::places::Place;
use super::responses::{self, Making};
use crate::access::Access;
use crate::answer::{Run, Taken, Waiting, Writer, events, whole};
use crate::api::ParsedRequest;
use crate::brain::{Client, Held, Note, Updates};
use crate::clock::unix_seconds;
use crate::dialects::{Dialect, Head, ask, is_quick};
use crate::error::ApiError;
use crate::open_requests::Stage;
use crate::traced::{TRACEPARENT, Trace};
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use domain::session::Served;
use domain::{RequestId, salted_tenant};
use keys::{Admission, Key};
use std::iter;
use std::sync::Arc;
use telemetry::metrics;
use telemetry::metrics::Outcome;
use threads::Doing;

/// Answers a request in `dialect`. The answer tells what is left to the request's key.
pub(super) async fn generate(app: Arc<App>, dialect: &'static dyn Dialect, request: Request) -> Response {
    let name: RequestId = *request.extensions().get().expect("every request has its id");
    let trace = Trace::begin(request.headers());
    let client = request.extensions().get().cloned();
    let access = Access::begin((name, client), dialect, app.card.name.clone(), app.clock, trace, &app.open_requests);
    let key = app.config.keys.find(request.headers());
    let (answered, key) = match key {
        Ok(key) => {
            key.iter().for_each(|key| access.shows(key));
            (answer(&app, dialect, request, key.as_ref(), &access).await, key)
        }
        Err(error) => {
            let error = ApiError::from(error);
            metrics::requests(error.outcome()).increment(1);
            (Err(error), None)
        }
    };
    let mut response = answered.inspect_err(|error| access.refused(error)).unwrap_or_else(|error| {
        let body = dialect.error(&error, name);
        error.response(body)
    });
    if let Some(key) = key {
        key.tell(response.headers_mut());
    }
    if let Some(context) = access.context() {
        let value = HeaderValue::from_str(&context.to_traceparent()).expect("digits are ASCII");
        response.headers_mut().insert(TRACEPARENT, value);
    }
    access.answered(response.status());
    response
}

async fn answer(
    app: &Arc<App>,
    dialect: &'static dyn Dialect,
    request: Request,
    key: Option<&Key>,
    access: &Arc<Access>,
) -> Result<Response, ApiError> {
    // Until the brain has the request, its outcome is counted here.
    let accepted = accept(app, dialect, request, key, access).await;
    let accepted = accepted.inspect_err(|error| metrics::requests(error.outcome()).increment(1))?;
    let making = accepted.making.clone();
    let dialect = making.as_ref().map_or(dialect as &dyn Dialect, |making| &making.turn);
    let writer = writer(app, dialect, &accepted, access.id());
    if accepted.ask.prompts.is_empty() {
        metrics::requests(Outcome::Stop).increment(1);
        return Ok(json(writer.whole(&[], Taken::default())));
    }
    let (waiting, ask, admission) = submit(app, accepted, access).await?;
    let mut run = Run::new(&ask, &app.card, waiting, admission);
    if !ask.options.stream {
        let body = whole(run, &*writer, ask.options.best).await?;
        if let Some(making) = &making {
            making.keep(app).await;
        }
        return Ok(json(body));
    }
    run.placed().await?;
    let events = events(run, writer, app.config.keepalive);
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(dialect.stream_type())),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    let body = match making {
        Some(making) => Body::from_stream(responses::keep_at_end(making, app.clone(), events)),
        None => Body::from_stream(events),
    };
    Ok((headers, body).into_response())
}

/// Returns what writes the answer to a request.
fn writer(app: &App, dialect: &dyn Dialect, accepted: &Accepted, request: RequestId) -> Box<dyn Writer> {
    let Accepted { ask, served, .. } = accepted;
    let head = Head {
        request,
        id: dialect.answer_id(request),
        created: unix_seconds(),
        model: app.card.name.clone(),
        fingerprint: fingerprint(served),
    };
    dialect.writer(head, ask, &app.card)
}

/// Returns what tells an answer's weights and its service from others.
fn fingerprint(served: &Served) -> String {
    let [a, b, c, d, e, ..] = served.weights;
    format!("fp_{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}_{}", env!("CARGO_PKG_VERSION"))
}

/// Returns an answer in one piece.
fn json(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// A request that the brain may have.
struct Accepted {
    ask: ParsedRequest,
    /// A place for each of its prompts.
    places: Place,
    /// Its connection, which is not closed for another meanwhile.
    admitted: Arc<Admitted>,
    /// What its workers serve.
    served: Served,
    /// What its key allows.
    admission: Admission,
    /// The response that it makes, where its dialect keeps its answers.
    making: Option<Arc<Making>>,
}

/// Reads the body, takes a place and parses it; then takes the places of further prompts. Where there is no place
/// to take, or its key allows no more, the body is not read.
async fn accept(
    app: &Arc<App>,
    dialect: &'static dyn Dialect,
    request: Request,
    key: Option<&Key>,
    access: &Access,
) -> Result<Accepted, ApiError> {
    let admission = admit(app, key)?;
    let served = app.service()?.served;
    if app.places.are_taken() {
        return Err(no_place(app, access).await);
    }
    let (head, body) = request.into_parts();
    let connection: &Arc<Connection> = head.extensions.get().expect("every request has its connection");
    let body = Arc::new(body::read(&head.headers, body, app).await?);
    access.reaches(Stage::Tokens);
    let mut places = place(app, 1, access).await?;
    let admitted = Arc::new(connection.admit());
    let limits = app.limits()?;
    let mut is_quick = is_quick(dialect, &body);
    let making = match dialect.keeps() {
        true => Some(Arc::new(responses::begin(app, &body, is_quick, key).await?)),
        false => None,
    };
    is_quick &= making.as_ref().is_none_or(|making| making.is_first);
    let parse = {
        let (app, making) = (app.clone(), making.clone());
        move || {
            let dialect = making.as_ref().map_or(dialect as &dyn Dialect, |making| &making.turn);
            ask(dialect, &body, &app.card, &limits)
        }
    };
    let begun = app.clock.now();
    let ask = if is_quick {
        parse()?
    } else {
        let parse = move || threads::during(Doing::ReadsPrompt, parse);
        match tokio::task::spawn_blocking(parse).await {
            Ok(parsed) => parsed?,
            Err(error) => return Err(ApiError::internal(format!("Parsing the request failed: {error}."))),
        }
    };
    check_grammar(app, &ask, limits.grammars).await?;
    access.tokenized(begun, app.clock.now());
    if ask.prompts.len() > 1 {
        places.merge(place(app, ask.prompts.len() - 1, access).await?);
    }
    app.open()?;
    admission.take(ask.prompts.iter().map(|prompt| prompt.tokens.len()).sum());
    Ok(Accepted { ask, places, admitted, served, admission, making })
}

/// Checks that the grammar of a request is one, on a thread that may block: to compile one may take as long as a step.
async fn check_grammar(app: &Arc<App>, ask: &ParsedRequest, have_grammars: bool) -> Result<(), ApiError> {
    let Some(asked) = ask.options.grammar.clone() else { return Ok(()) };
    let app = app.clone();
    let check = move || threads::during(Doing::ReadsPrompt, || asked.check(&app.card, have_grammars));
    match tokio::task::spawn_blocking(check).await {
        Ok(checked) => checked,
        Err(error) => Err(ApiError::internal(format!("Checking the grammar failed: {error}."))),
    }
}

/// Checks that requests are taken, and this key's for the model. Returns what it allows.
pub(super) fn admit(app: &App, key: Option<&Key>) -> Result<Admission, ApiError> {
    app.open()?;
    match key {
        Some(key) if !key.may_ask(&app.card.name) => Err(ApiError::forbidden_model(&app.card.name, &key.id())),
        Some(key) => Ok(key.admit()?),
        None => Ok(Admission::free()),
    }
}

async fn place(app: &App, prompts: usize, access: &Access) -> Result<Place, ApiError> {
    match app.places.take(prompts) {
        Some(place) => Ok(place),
        None => Err(no_place(app, access).await),
    }
}

async fn no_place(app: &App, access: &Access) -> ApiError {
    access.reaches(Stage::Refused);
    let most = app.places.most();
    app.overloaded(format!("{most} prompts are open, the most that this service takes.")).await
}

/// Gives the prompts of a request to the brain; the first has the id that the client knows.
async fn submit(
    app: &App,
    accepted: Accepted,
    access: &Arc<Access>,
) -> Result<(Waiting, ParsedRequest, Admission), ApiError> {
    let Accepted { ask, mut places, admitted, served, admission, making: _ } = accepted;
    let (name, arrived) = (access.id(), access.arrived());
    let tenant = match &ask.options.cache_salt {
        Some(salt) => salted_tenant(admission.tenant(), salt),
        None => admission.tenant().to_owned(),
    };
    let scope = served.scope(&tenant, None);
    access.reaches(Stage::Submitted);
    let prompts = ask.prompts.len();
    let choices = ask.options.choices;
    // Nobody but the router reads an answer that is told whole, and it keeps all of it in any case.
    let streams = app.config.stream_buffer.saturating_mul(prompts * usize::from(choices));
    let buffer = if ask.options.stream { streams.min(ask.updates_max()) } else { ask.updates_max() };
    let (updates, receiver) = Updates::new(buffer, prompts);
    let (ids, notes, access_held) = (Vec::with_capacity(prompts), app.notes.clone(), access.clone());
    let mut waiting = Waiting { ids, updates: receiver, notes, access: access_held };
    // Before the first prompt runs, room is set aside for the end of each.
    let mut clients = Vec::with_capacity(prompts);
    for at in 0..prompts {
        let held =
            Held { _place: places.split().expect("a place was taken for every prompt"), _connection: admitted.clone() };
        let base = at * usize::from(choices);
        clients.push(Client::new(&updates, base, choices, arrived, held).expect("the queue has room for every end"));
    }
    let deadline = app.config.limits.borrow().deadline;
    let seed = ask.options.seed.unwrap_or_else(|| app.draw.random());
    let ids = iter::once(name).chain(iter::repeat_with(|| RequestId(app.draw.unique())));
    for ((prompt, client), id) in ask.prompts.iter().zip(clients).zip(ids) {
        if id != name {
            tracing::debug!(request = %name, prompt = %id, "another prompt of the request");
        }
        let mut chain = Vec::new();
        scope.extend_chain(&mut chain, &prompt.tokens, served.block_tokens);
        let request = Arc::new(domain::Request {
            id,
            prompt: prompt.tokens.clone(),
            choices,
            params: prompt.params.clone(),
            seed,
            deadline: deadline.saturating_sub(app.clock.now().since(arrived)),
            tenant: tenant.clone(),
            // No client can name one yet.
            adapter: None,
        });
        waiting.ids.push(id);
        let note = Note::Arrive { request, chain, client, access: access.clone() };
        if app.notes.send(note).await.is_err() {
            return Err(ApiError::internal("The router's brain ended."));
        }
    }
    Ok((waiting, ask, admission))
}
