//! What a client is told when something goes wrong. The one place that maps causes to HTTP.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::{End, Ender};
use keys::{KeyError, LimitReached};
use placement::Rejected;
use std::time::Duration;
use telemetry::metrics::Outcome;

/// How long a client that was turned away should wait where nothing better is known.
const RETRY_AFTER_UNKNOWN: Duration = Duration::from_secs(1);

/// An error as the client gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: Kind,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
    retry_after: Option<Duration>,
}

/// What is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The request is.
    Request,
    /// There is too much to do.
    Load,
    /// A key has reached a limit.
    Limit,
    /// The service is.
    Service,
}

impl Kind {
    /// Returns it as OpenAI spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Request => "invalid_request_error",
            Self::Load | Self::Limit => "rate_limit_error",
            Self::Service => "server_error",
        }
    }
}

impl ApiError {
    fn new(status: StatusCode, kind: Kind, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code, retry_after: None }
    }

    fn bad(code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Kind::Request, code, message)
    }

    fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Makes the error for a body that cannot be read as a whole.
    pub(crate) fn body(message: impl Into<String>) -> Self {
        Self::bad(None, message)
    }

    /// Makes the error for a field `param` with a value that it cannot have.
    pub(crate) fn field(param: &str, message: impl Into<String>) -> Self {
        Self::bad(None, message).at(param)
    }

    /// Makes the error for a field `param` of the wrong type.
    pub(crate) fn field_type(param: &str, message: impl Into<String>) -> Self {
        Self::bad(Some("invalid_type"), message).at(param)
    }

    /// Makes the error for a field `param` that is missing.
    pub(crate) fn missing(param: &str) -> Self {
        Self::bad(Some("missing_required_parameter"), format!("Missing required parameter: '{param}'.")).at(param)
    }

    /// Makes the error for a field `param` that the API does not have.
    pub(crate) fn unknown_field(param: &str) -> Self {
        Self::bad(Some("unknown_parameter"), format!("Unknown parameter: '{param}'.")).at(param)
    }

    /// Makes the error for a field that the API has and this service does not support.
    pub(crate) fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self::bad(Some("unsupported_parameter"), message).at(param)
    }

    /// Makes the error for an unknown model `name`; `known` is there.
    pub(crate) fn no_model(name: &str, known: &str) -> Self {
        let message = format!("The model '{name}' does not exist. This service has: '{known}'.");
        Self::new(StatusCode::NOT_FOUND, Kind::Request, Some("model_not_found"), message).at("model")
    }

    /// Makes the error for a response that is not kept here, or not for who asks.
    pub(crate) fn no_response(id: &str) -> Self {
        let message = format!("Response with id '{id}' not found.");
        Self::new(StatusCode::NOT_FOUND, Kind::Request, None, message)
    }

    /// Makes the error for a field `param` that names a response to go on from, which is not kept here, or not for who
    /// asks.
    pub(crate) fn no_previous_response(param: &str, id: &str) -> Self {
        let message = format!("Previous response with id '{id}' not found.");
        Self::bad(Some("previous_response_not_found"), message).at(param)
    }

    /// Makes the error for a prompt and an answer that do not fit the context; the message has the numbers.
    pub(crate) fn context(param: &str, message: impl Into<String>) -> Self {
        Self::bad(Some("context_length_exceeded"), message).at(param)
    }

    /// Makes the error for a body of more than `most` bytes.
    pub(crate) fn body_too_large(most: usize) -> Self {
        let message = format!("The body of the request has more than {most} bytes, the most that this service takes.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Kind::Request, Some("body_too_large"), message)
    }

    /// Makes the error for a body that did not arrive within `wait`, or that came at fewer than `bytes_per_s`.
    pub(crate) fn body_too_slow(wait: Duration, bytes_per_s: u64) -> Self {
        let wait = wait.as_secs_f32();
        let message =
            format!("The body of the request must arrive within {wait} s, with {bytes_per_s} bytes a second or more.");
        Self::new(StatusCode::REQUEST_TIMEOUT, Kind::Request, Some("body_timeout"), message)
    }

    /// Makes the error for a body that is not declared to be JSON.
    pub(crate) fn content_type(found: Option<&str>) -> Self {
        let found = found.map_or("there is none".to_owned(), |found| format!("it is '{found}'"));
        let message = format!("The header Content-Type must be 'application/json'; {found}.");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::Request, Some("unsupported_media_type"), message)
    }

    /// Makes the error for a body that is encoded in a way that is not known here.
    pub(crate) fn content_encoding(found: &str) -> Self {
        let message = format!("The header Content-Encoding must be 'gzip' or 'identity'; it is '{found}'.");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::Request, Some("unsupported_encoding"), message)
    }

    /// Makes the error for a path that does not exist.
    pub(crate) fn no_path(method: &str, path: &str) -> Self {
        let message = format!("Unknown request URL: {method} {path}.");
        Self::new(StatusCode::NOT_FOUND, Kind::Request, Some("unknown_url"), message)
    }

    /// Makes the error for a path that exists for other methods.
    pub(crate) fn no_method(method: &str, path: &str) -> Self {
        let message = format!("{path} does not take {method}.");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Kind::Request, Some("method_not_allowed"), message)
    }

    /// Makes the error for a model that the key `id` may not ask.
    pub(crate) fn forbidden_model(name: &str, id: &str) -> Self {
        let message = format!("The key {id} may not use the model '{name}'.");
        Self::new(StatusCode::FORBIDDEN, Kind::Request, Some("model_not_allowed"), message).at("model")
    }

    /// Makes the error for more work than may wait.
    pub(crate) fn overloaded(message: impl Into<String>, retry_after: Duration) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, Kind::Load, Some("overloaded"), message);
        error.retry_after = Some(retry_after);
        error
    }

    /// Makes the error for a request that no worker can serve now.
    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Service, Some(code), message);
        error.retry_after = Some(RETRY_AFTER_UNKNOWN);
        error
    }

    /// Makes the error for a bug of Baton.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Service, Some("internal_error"), message)
    }

    /// Makes the error for a request that was accepted and ended irregularly.
    pub(crate) fn ended(end: &End) -> Self {
        let detail = &end.detail;
        match end.by {
            Ender::Limit => {
                let message = format!("The request reached a limit: {detail}");
                Self::new(StatusCode::GATEWAY_TIMEOUT, Kind::Service, Some("deadline_exceeded"), message)
            }
            Ender::Us => Self::unavailable("ended_by_service", format!("The service ended the request: {detail}")),
            Ender::Worker => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                Kind::Service,
                Some("worker_failed"),
                format!("The request could not be completed: {detail}"),
            ),
            Ender::Client | Ender::Done => Self::internal(format!("The request ended early: {detail}")),
        }
    }

    /// Makes the error for a request that the brain refused before any token.
    pub(crate) fn rejected(why: Rejected, detail: &str) -> Self {
        match why {
            Rejected::Overloaded { retry_after } => {
                Self::overloaded(format!("There is too much to do: {detail}."), retry_after)
            }
            Rejected::NoWorkers => Self::unavailable("no_workers", format!("No worker is there: {detail}.")),
            Rejected::TooLarge => {
                Self::bad(Some("request_too_large"), format!("No worker is large enough for the request: {detail}."))
            }
            Rejected::Invalid => {
                Self::bad(Some("request_invalid"), format!("The request cannot be computed: {detail}."))
            }
        }
    }

    /// Returns how metrics count a request that gets this answer instead of being accepted.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.kind {
            Kind::Request => Outcome::Invalid,
            Kind::Limit => Outcome::Limited,
            Kind::Load | Kind::Service => Outcome::Rejected,
        }
    }

    /// Returns it as the answer to a call of an operator.
    pub(crate) fn to_admin(&self) -> admin::Status {
        let message = self.message.clone();
        match self.kind {
            Kind::Request => admin::Status::invalid_argument(message),
            Kind::Load | Kind::Limit => admin::Status::resource_exhausted(message),
            Kind::Service if self.status == StatusCode::SERVICE_UNAVAILABLE => admin::Status::unavailable(message),
            Kind::Service => admin::Status::internal(message),
        }
    }

    /// Returns its `code`, if it has one.
    pub(crate) fn code(&self) -> Option<&'static str> {
        self.code
    }

    /// Returns its HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns what is at fault.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns what it says.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the field that is at fault, if there is one.
    pub(crate) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// Returns it as an answer with this body, which is JSON.
    pub(crate) fn response(&self, body: Vec<u8>) -> Response {
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        let (code, message) = match error {
            KeyError::Missing => {
                let how = "send the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'";
                ("missing_api_key", format!("This service asks for an API key: {how}."))
            }
            KeyError::Unknown => ("invalid_api_key", "The API key is not known here, or was revoked.".to_owned()),
        };
        Self::new(StatusCode::UNAUTHORIZED, Kind::Request, Some(code), message)
    }
}

impl From<LimitReached> for ApiError {
    fn from(reached: LimitReached) -> Self {
        let LimitReached { key, most, unit, wait } = reached;
        let message = format!("The key {key} has reached its limit of {most} {unit}.");
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, Kind::Limit, Some("rate_limit_exceeded"), message);
        error.retry_after = Some(wait);
        error
    }
}
