//! `POST /inference/v1/generate`: tokens in, tokens out, in vLLM's form. And `POST /v1/chat/completions/render`, which
//! makes the body of such a request of a chat.

use super::form::{Usage, finish_reason};
use super::logprobs::{ChatLogprobs, Logged};
use super::options;
use crate::answer::{Delta, Finish, LoggedToken, Taken, Whole, Writer};
use crate::api::{Fields, Limits, Options, ParsedRequest, at_least, in_vocabulary, model, typed};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use bytes::{BufMut, BytesMut};
use domain::{RequestId, SamplingParams, Token};
use engine::text::{SpecialTokens, Tokenizer};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The field that holds the prompt.
const TOKENS: &str = "token_ids";
/// The field that says how to sample.
const SAMPLING: &str = "sampling_params";
/// Most alternatives per token in log probabilities.
const LOGPROBS_MAX: i64 = 20;
/// Longest name of a client for its request, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 256;

/// Tokens that go on.
#[derive(Debug)]
pub(crate) struct Generate;

impl Dialect for Generate {
    fn path(&self) -> &'static str {
        "/inference/v1/generate"
    }

    fn operation(&self) -> &'static str {
        "text_completion"
    }

    fn prompt_field(&self) -> &'static str {
        TOKENS
    }

    fn answer_id(&self, id: RequestId) -> String {
        format!("gen-{:016x}", id.0)
    }

    fn has_tokens(&self, _body: &[u8]) -> bool {
        true
    }

    fn parse(
        &self,
        mut fields: Fields<'_>,
        card: &ModelCard,
        limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        if fields.has("model") {
            model(&mut fields, card)?;
        }
        let tokens: Vec<Token> = typed(fields.required(TOKENS)?, TOKENS, "an array of token ids")?;
        in_vocabulary(&tokens, TOKENS, card)?;
        let sampled = sampled(&mut fields, card, limits)?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        let include_usage = options::include_usage(&mut fields, stream)?;
        let cache_salt = options::cache_salt(&mut fields)?;
        let client_id = client_id(&mut fields)?;
        fields.neutral("priority", &[json!(0)])?;
        for field in ["features", "kv_transfer_params"] {
            fields.neutral(field, &[])?;
        }
        fields.finish()?;
        let options =
            Options { stream, include_usage, cache_salt, client_id, tells_tokens: true, goes_on: true, ..sampled };
        Ok((vec![tokens], options))
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        let options = &asked.options;
        Box::new(TokensWriter {
            request_id: options.client_id.clone().unwrap_or_else(|| head.id.clone()),
            head,
            tokenizer: card.tokenizer.clone(),
            logprobs: options.params.logprobs.is_some(),
            usage: options.include_usage,
        })
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        super::error(error)
    }
}

/// Takes `sampling_params`.
fn sampled(fields: &mut Fields<'_>, card: &ModelCard, limits: &Limits) -> Result<Options, ApiError> {
    let mut inner = match fields.raw(SAMPLING) {
        Some(raw) => Fields::of_field(raw, SAMPLING)?,
        None => return Err(ApiError::missing(SAMPLING)),
    };
    let max_tokens = at_least(&mut inner, "max_tokens", 1)?;
    let logprobs = inner.integer("logprobs", 0..=LOGPROBS_MAX)?.map(|top| top as u32);
    let mut options = options::sampled(&mut inner, card, limits, max_tokens, logprobs)?;
    // There is no text.
    inner.flag("detokenize")?;
    inner.finish()?;
    options.set_grammar(SAMPLING, &[], card)?;
    Ok(options)
}

/// Takes `request_id`, which the answer repeats.
fn client_id(fields: &mut Fields<'_>) -> Result<Option<String>, ApiError> {
    const ID: &str = "request_id";
    match fields.string(ID)? {
        Some(id) if id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX => {
            let message = format!("'{ID}' must have 1 to {CLIENT_ID_BYTES_MAX} bytes, not {}.", id.len());
            Err(ApiError::field(ID, message))
        }
        id => Ok(id),
    }
}

/// Writes tokens.
struct TokensWriter {
    head: Head,
    /// What the answer calls the request.
    request_id: String,
    tokenizer: Tokenizer,
    /// The client asked for log probabilities.
    logprobs: bool,
    /// The client asked for the usage in its stream.
    usage: bool,
}

/// An answer, or a chunk of one.
#[derive(Serialize)]
struct Answer<'a> {
    request_id: &'a str,
    id: &'a str,
    created: u64,
    model: &'a str,
    choices: Vec<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    prompt_logprobs: Option<()>,
    kv_transfer_params: Option<()>,
}

/// A sequence of an answer, or a chunk of it.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    token_ids: &'a [Token],
}

impl TokensWriter {
    fn answer<'a>(&'a self, choices: Vec<Choice<'a>>, usage: Option<Usage>) -> Answer<'a> {
        let Head { id, created, model, .. } = &self.head;
        let request_id = &self.request_id;
        Answer {
            request_id,
            id,
            created: *created,
            model,
            choices,
            usage,
            prompt_logprobs: None,
            kv_transfer_params: None,
        }
    }

    fn logged<'a>(&'a self, tokens: &'a [LoggedToken]) -> Option<ChatLogprobs<'a>> {
        self.logprobs.then(|| Logged { tokenizer: &self.tokenizer, tokens }.into())
    }
}

impl Writer for TokensWriter {
    fn delta(&mut self, index: usize, delta: &Delta, out: &mut BytesMut) {
        let choice =
            Choice { index, logprobs: self.logged(&delta.logprobs), finish_reason: None, token_ids: &delta.tokens };
        super::event(out, &self.answer(vec![choice], None));
    }

    fn finish(&mut self, index: usize, finish: Finish, out: &mut BytesMut) {
        let choice = Choice { index, logprobs: None, finish_reason: Some(finish_reason(finish)), token_ids: &[] };
        super::event(out, &self.answer(vec![choice], None));
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        if self.usage {
            super::event(out, &self.answer(Vec::new(), Some(Usage::of(taken))));
        }
        out.put_slice(super::DONE);
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        super::error_event(out, error);
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let choice = |(index, whole): (usize, &'_ Whole)| (index, finish_reason(whole.finish));
        let choices = (sequences.iter().enumerate()).map(|(at, whole)| {
            let (index, finish_reason) = choice((at, whole));
            let finish_reason = Some(finish_reason);
            Choice { index, logprobs: self.logged(&whole.logprobs), finish_reason, token_ids: &whole.tokens }
        });
        super::whole(&self.answer(choices.collect(), Some(Usage::of(taken))))
    }
}

/// Returns the body of the request whose answer has the tokens of that to a chat. `body`: of the chat. Takes time with
/// its length. Errors: what the client has to fix.
pub(crate) fn render(body: &[u8], card: &ModelCard, limits: &Limits) -> Result<Value, ApiError> {
    let ParsedRequest { prompts, options } = crate::dialects::ask(&super::Chat, body, card, limits)?;
    let prompt = prompts.first().ok_or_else(|| ApiError::internal("A chat has no prompt."))?;
    let mut body = json!({
        "model": card.name,
        TOKENS: &prompt.tokens[..],
        SAMPLING: sampling(&prompt.params, &options),
        "stream": options.stream,
        "cache_salt": options.cache_salt,
        "priority": 0,
        "features": null,
        "kv_transfer_params": null,
    });
    if options.include_usage {
        body["stream_options"] = json!({ "include_usage": true });
    }
    Ok(body)
}

/// Returns `sampling_params` with all that is not the default of the API itself.
fn sampling(params: &SamplingParams, options: &Options) -> Value {
    let shown = options.special_tokens != SpecialTokens::Hidden;
    let biases = params.logit_bias.iter().map(|&(token, bias)| (token.to_string(), json!(bias)));
    let mut sampling = json!({
        "n": options.choices,
        "max_tokens": params.max_tokens,
        "min_tokens": params.min_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "seed": options.seed.map(|seed| seed as i64),
        "stop": options.stops,
        "stop_token_ids": params.stop_tokens,
        // All that stops it is among the tokens above.
        "ignore_eos": true,
        "logprobs": params.logprobs,
        "include_stop_str_in_output": options.shows_stop,
        "skip_special_tokens": !shown,
    });
    if !params.logit_bias.is_empty() {
        sampling["logit_bias"] = Value::Object(biases.collect::<Map<_, _>>());
    }
    if let Some(asked) = &options.grammar {
        sampling["structured_outputs"] = json!({ "grammar": asked.grammar.text() });
    }
    sampling
}
