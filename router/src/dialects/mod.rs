//! The APIs that the router speaks. A dialect reads the bodies of its requests and writes its answers; the way between
//! is one for all: tokens in, and a stream of typed deltas out (`answer`).
//!
//! A dialect is a file with a [`Dialect`] and a [`Writer`], and its line in [`ALL`].

pub(crate) mod anthropic;
pub(crate) mod ollama;
pub(crate) mod openai;
mod prefix;
mod time;
mod tokens;

pub(crate) use prefix::prefix;
pub(crate) use tokens::{detokenize, tokenize};

use crate::answer::Writer;
use crate::api::{Fields, Limits, Options, ParsedRequest};
use crate::config::ModelCard;
use crate::error::ApiError;
use axum::response::Response;
use domain::{RequestId, Token};
use std::fmt::Debug;

/// All dialects that generate text.
pub(crate) const ALL: [&dyn Dialect; 7] = [
    &openai::Chat,
    &openai::Completion,
    &openai::Responses,
    &openai::Generate,
    &anthropic::Messages,
    &ollama::Chat,
    &ollama::Generate,
];

/// Longest body whose text may be tokenized while others wait.
const QUICK_TEXT_BYTES_MAX: usize = 4096;
/// Longest body that may be parsed while others wait, where its prompts are tokens already.
const QUICK_TOKENS_BYTES_MAX: usize = 128 << 10;

/// An API that generates text.
pub(crate) trait Dialect: Debug + Send + Sync {
    /// Returns the path of its requests.
    fn path(&self) -> &'static str;

    /// Returns what the paths begin with whose errors have its form.
    fn realm(&self) -> &'static str {
        self.path()
    }

    /// Returns the media type of its streams.
    fn stream_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    /// Returns what it does, in the words of OpenTelemetry.
    fn operation(&self) -> &'static str;

    /// Returns the field that holds the prompt.
    fn prompt_field(&self) -> &'static str;

    /// Returns the `id` of the answer to a request.
    fn answer_id(&self, id: RequestId) -> String;

    /// Returns whether its answers are kept, and go on from kept ones.
    fn keeps(&self) -> bool {
        false
    }

    /// Returns whether there is nothing to tokenize in a body: its prompts are tokens, as far as their beginning says.
    fn has_tokens(&self, _body: &[u8]) -> bool {
        false
    }

    /// Reads the prompts, in tokens, and the options from the fields of a body. No prompt: there is nothing to compute,
    /// and the answer is told whole, of no sequence. Takes time with their length. Errors: what the client has to fix.
    fn parse(
        &self,
        fields: Fields<'_>,
        card: &ModelCard,
        limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError>;

    /// Returns what writes the answer to `asked`.
    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer>;

    /// Returns the body of the error that `request` gets, as JSON.
    fn error(&self, error: &ApiError, request: RequestId) -> Vec<u8>;
}

/// What all parts of an answer begin with.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The request.
    pub(crate) request: RequestId,
    /// Id of the answer.
    pub(crate) id: String,
    /// Seconds since the Unix epoch.
    pub(crate) created: u64,
    /// Name of the model.
    pub(crate) model: String,
    /// What tells the weights and the service that made the answer from others.
    pub(crate) fingerprint: String,
}

/// Answers `error` to `request`, which asked for `path`, as the dialect does to which the path belongs.
pub(crate) fn refuse(path: &str, error: &ApiError, request: RequestId) -> Response {
    let dialect = ALL.into_iter().find(|dialect| path.starts_with(dialect.realm())).unwrap_or(&openai::Chat);
    error.response(dialect.error(error, request))
}

/// Returns whether [`ask`] takes well under a millisecond for this body, less than handing it to another thread and
/// back may.
pub(crate) fn is_quick(dialect: &dyn Dialect, body: &[u8]) -> bool {
    body.len() <= QUICK_TEXT_BYTES_MAX || (body.len() <= QUICK_TOKENS_BYTES_MAX && dialect.has_tokens(body))
}

/// Parses the body of a request, tokenizes it and checks it against every limit. Takes time with the length of the
/// body. Errors: what the client has to fix.
pub(crate) fn ask(
    dialect: &dyn Dialect,
    body: &[u8],
    card: &ModelCard,
    limits: &Limits,
) -> Result<ParsedRequest, ApiError> {
    parse(dialect, Fields::of_body(body)?, card, limits)
}

/// Does what [`ask`] says, with the fields of a body.
fn parse(
    dialect: &dyn Dialect,
    fields: Fields<'_>,
    card: &ModelCard,
    limits: &Limits,
) -> Result<ParsedRequest, ApiError> {
    let (prompts, options) = dialect.parse(fields, card, limits)?;
    ParsedRequest::new(prompts, options, dialect.prompt_field(), limits)
}
