//! What a server understands: found out by asking, once, before anything is measured.

use crate::answer::{Answer, Usage};
use crate::client::{Client, PlainError};
use crate::clock::Clock;
use crate::error::BenchError;
use crate::prompt::{Medium, Prompt, words};
use crate::random::Purpose;
use crate::record::Failure;
use crate::request::{self, Dialect};
use crate::settings::{Api, Settings};
use crate::workload::Segment;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

/// What was found out.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) model: String,
    /// What the server calls itself.
    pub(crate) server: Option<String>,
    pub(crate) dialect: Dialect,
    pub(crate) medium: Medium,
    /// What a person should know of it.
    pub(crate) notes: Vec<String>,
}

/// Words of the two prompts from whose difference the tokens of a word are measured.
const CALIBRATION_WORDS: [u32; 2] = [64, 192];
/// Attempts at a first request: each leaves out a field that the server may not know.
const ATTEMPTS_MAX: usize = 4;

impl Api {
    /// Returns its path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// Asks the server for its model, and for a first token in the fullest form that it understands.
pub(crate) async fn find(client: &Client, settings: &Settings) -> Result<Found, BenchError> {
    let (model, server) = model(client, settings).await?;
    let mut dialect = Dialect { ignore_eos: true, usage: true };
    let mut notes = Vec::new();
    // A conversation carries answers, and answers are text.
    let mut takes_ids = settings.api == Api::Completions && settings.shape.turns == 1;
    for _ in 0..ATTEMPTS_MAX {
        let prompt = if takes_ids {
            let range = settings.token_ids;
            Prompt::Ids([range.low, range.high].repeat(2))
        } else {
            text_prompt(settings, CALIBRATION_WORDS[0])
        };
        let usage = match first(client, settings, &model, dialect, &prompt).await {
            Ok(usage) => usage,
            Err(Failure::Connect(why)) => return Err(BenchError::Unreachable { url: client.url(""), why }),
            Err(Failure::Status(400 | 422 | 500 | 501, why)) if why.contains("ignore_eos") && dialect.ignore_eos => {
                dialect.ignore_eos = false;
                continue;
            }
            Err(Failure::Status(400 | 422 | 500 | 501, why)) if why.contains("stream_options") && dialect.usage => {
                dialect.usage = false;
                continue;
            }
            Err(Failure::Status(400 | 422 | 500 | 501, why)) if takes_ids => {
                takes_ids = false;
                notes.push(format!("prompts are words, not token ids {}: {why}", settings.token_ids));
                continue;
            }
            Err(Failure::Status(400 | 422 | 500 | 501, _)) if dialect.ignore_eos => {
                dialect.ignore_eos = false;
                continue;
            }
            Err(failure) => return Err(refused(client, settings, &model, &failure)),
        };
        let medium = if takes_ids {
            Medium::Ids(settings.token_ids)
        } else {
            calibrate(client, settings, &model, dialect, usage).await?
        };
        if !dialect.ignore_eos {
            notes.push("the server does not take ignore_eos: answers may be shorter than asked for".to_owned());
        }
        if usage.is_none() {
            notes.push("the server does not count tokens: input is as asked for, output counts events".to_owned());
        }
        return Ok(Found { model, server, dialect, medium, notes });
    }
    let failure = Failure::Status(400, format!("{ATTEMPTS_MAX} ways to ask were refused"));
    Err(refused(client, settings, &model, &failure))
}

/// Returns the model's name and what the server calls itself.
async fn model(client: &Client, settings: &Settings) -> Result<(String, Option<String>), BenchError> {
    const MODELS: &str = "/v1/models";
    let url = client.url(MODELS);
    let answer = tokio::time::timeout(settings.timeout, client.plain(Method::GET, MODELS, Bytes::new())).await;
    let answer = answer.unwrap_or(Err(PlainError::Timeout(settings.timeout)));
    let answer = answer.map_err(|error| BenchError::Unreachable { url: client.url(""), why: error.to_string() })?;
    if let Some(model) = &settings.model {
        return Ok((model.clone(), answer.server));
    }
    let list: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    match list["data"][0]["id"].as_str() {
        Some(model) => Ok((model.to_owned(), answer.server)),
        None => Err(BenchError::NoModel { url, why: format!("{}", answer.status) }),
    }
}

fn refused(client: &Client, settings: &Settings, model: &str, failure: &Failure) -> BenchError {
    let detail = failure.detail();
    let why = if detail.is_empty() { failure.kind() } else { format!("{}: {detail}", failure.kind()) };
    BenchError::Refused { url: client.url(settings.api.path()), model: model.to_owned(), why }
}

/// Asks for one token.
async fn first(
    client: &Client,
    settings: &Settings,
    model: &str,
    dialect: Dialect,
    prompt: &Prompt,
) -> Result<Option<Usage>, Failure> {
    let body = request::body(settings, model, dialect, prompt, 1);
    let mut answer = Answer::default();
    let clock = Clock::begin();
    let fetch = answer.fetch(client, &clock, settings.api.path(), body, |_| {});
    tokio::time::timeout(settings.timeout, fetch).await.unwrap_or(Err(Failure::Timeout))?;
    Ok(answer.usage)
}

/// Returns how many tokens words have.
async fn calibrate(
    client: &Client,
    settings: &Settings,
    model: &str,
    dialect: Dialect,
    short: Option<Usage>,
) -> Result<Medium, BenchError> {
    let [few, many] = CALIBRATION_WORDS;
    let plain = Medium::Words { tokens_per_word: 1.0, overhead: 0.0 };
    let Some(short) = short else { return Ok(plain) };
    let long = first(client, settings, model, dialect, &text_prompt(settings, many)).await;
    let Some(long) = long.map_err(|failure| refused(client, settings, model, &failure))? else { return Ok(plain) };
    let slope = (long.prompt_tokens as f64 - short.prompt_tokens as f64) / f64::from(many - few);
    if slope <= 0.0 {
        return Ok(plain);
    }
    let overhead = (short.prompt_tokens as f64 - slope * f64::from(few)).max(0.0);
    Ok(Medium::Words { tokens_per_word: slope, overhead })
}

/// Returns a prompt of so many words.
fn text_prompt(settings: &Settings, count: u32) -> Prompt {
    let content = words(settings.seed, &[Segment { text: Purpose::WarmUp(u64::MAX), tokens: count }], 1.0, 0.0);
    match settings.api {
        Api::Completions => Prompt::Text(content),
        Api::Chat => Prompt::Messages(vec![crate::prompt::Message { role: "user", content }]),
    }
}
