//! `POST /v1/completions`.

use super::form::{Object, Usage, finish_reason};
use super::logprobs::{CompletionLogprobs, Logged};
use super::options;
use crate::answer::{Delta, Finish, LoggedToken, Taken, Whole, Writer};
use crate::api::{Fields, Limits, Options, ParsedRequest, at_least, in_vocabulary, model, sort, typed};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use bytes::{BufMut, BytesMut};
use domain::{RequestId, Token};
use engine::text::Tokenizer;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

/// Most alternatives per token in a completion's log probabilities.
const LOGPROBS_MAX: i64 = 5;

/// Tokens of an answer if the request has no limit, as in OpenAI's API.
const MAX_TOKENS_DEFAULT: u32 = 16;

/// The field that holds the prompts.
const PROMPT: &str = "prompt";

/// Completions.
#[derive(Debug)]
pub(crate) struct Completion;

impl Dialect for Completion {
    fn path(&self) -> &'static str {
        "/v1/completions"
    }

    fn operation(&self) -> &'static str {
        "text_completion"
    }

    fn prompt_field(&self) -> &'static str {
        PROMPT
    }

    fn answer_id(&self, id: RequestId) -> String {
        format!("cmpl-{:016x}", id.0)
    }

    fn has_tokens(&self, body: &[u8]) -> bool {
        let prompt = Fields::of_body(body).ok().and_then(|mut fields| fields.raw(PROMPT));
        prompt.is_some_and(|raw| {
            let mut head = raw.get().bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'[');
            head.next().is_some_and(|byte| byte.is_ascii_digit())
        })
    }

    fn parse(
        &self,
        mut fields: Fields<'_>,
        card: &ModelCard,
        limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        model(&mut fields, card)?;
        let prompt = fields.required(PROMPT)?;
        let max_tokens = at_least(&mut fields, "max_tokens", 1)?.or(Some(MAX_TOKENS_DEFAULT));
        let logprobs = fields.integer("logprobs", 0..=LOGPROBS_MAX)?.map(|top| top as u32);
        let options = options::take(&mut fields, card, limits, max_tokens, logprobs)?;
        fields.neutral("echo", &[json!(false)])?;
        fields.neutral("suffix", &[json!("")])?;
        fields.neutral("response_format", &[options::text_format()])?;
        fields.finish()?;
        Ok((prompts(prompt, card, limits)?, Options { goes_on: true, ..options }))
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        let options = &asked.options;
        let logprobs = options.params.logprobs.is_some();
        Box::new(CompletionWriter { head, tokenizer: card.tokenizer.clone(), logprobs, usage: options.include_usage })
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        super::error(error)
    }
}

/// Reads the tokens of the field `prompt`: a text, tokens, or several of either.
fn prompts(raw: &RawValue, card: &ModelCard, limits: &Limits) -> Result<Vec<Vec<Token>>, ApiError> {
    const WANTED: &str = "a string, an array of strings, an array of token ids, or an array of such arrays";
    let encode = |text: &String| {
        card.tokenizer.encode(text, true).map_err(|error| ApiError::internal(format!("The tokenizer failed: {error}")))
    };
    // The kind is in the first characters, so that each is read straight into what it is.
    let mut head = raw.get().bytes().filter(|byte| !byte.is_ascii_whitespace());
    let tokens = match (head.next(), head.next()) {
        (Some(b'"'), _) => vec![encode(&typed(raw, PROMPT, WANTED)?)?],
        (Some(b'['), Some(b']')) => return Err(ApiError::field(PROMPT, "'prompt' is empty.")),
        (Some(b'['), Some(b'"')) => {
            let texts: Vec<String> = typed(raw, PROMPT, WANTED)?;
            fits_batch(texts.len(), limits)?;
            texts.iter().map(encode).collect::<Result<_, _>>()?
        }
        (Some(b'['), Some(b'[')) => {
            let batch: Vec<Vec<Token>> = typed(raw, PROMPT, WANTED)?;
            fits_batch(batch.len(), limits)?;
            batch
        }
        (Some(b'['), Some(_)) => vec![typed(raw, PROMPT, WANTED)?],
        _ => return Err(ApiError::field_type(PROMPT, format!("'{PROMPT}' must be {WANTED}, not {}.", sort(raw)))),
    };
    for prompt in &tokens {
        if prompt.is_empty() {
            return Err(ApiError::field(PROMPT, "'prompt' is empty; there must be at least one token."));
        }
        in_vocabulary(prompt, PROMPT, card)?;
    }
    Ok(tokens)
}

fn fits_batch(prompts: usize, limits: &Limits) -> Result<(), ApiError> {
    let most = limits.prompts_max;
    if prompts <= most {
        return Ok(());
    }
    Err(ApiError::field("prompt", format!("'prompt' has {prompts} prompts; {most} are allowed in one request.")))
}

/// Writes the answer to a completion.
struct CompletionWriter {
    head: Head,
    tokenizer: Tokenizer,
    /// The client asked for log probabilities.
    logprobs: bool,
    /// The client asked for the usage.
    usage: bool,
}

/// A sequence of an answer, or a chunk of it.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: Option<&'static str>,
}

impl CompletionWriter {
    fn logged<'a>(&'a self, tokens: &'a [LoggedToken]) -> Option<CompletionLogprobs<'a>> {
        self.logprobs.then(|| Logged { tokenizer: &self.tokenizer, tokens }.into())
    }

    fn chunk<C: Serialize>(&self, choices: C, usage: Option<Usage>, out: &mut BytesMut) {
        let usage = self.usage.then_some(usage);
        super::event(out, &Object::new("text_completion", &self.head, choices, usage));
    }
}

impl Writer for CompletionWriter {
    fn delta(&mut self, index: usize, delta: &Delta, out: &mut BytesMut) {
        let logprobs = self.logged(&delta.logprobs);
        self.chunk([Choice { index, text: delta.text(), logprobs, finish_reason: None }], None, out);
    }

    fn finish(&mut self, index: usize, finish: Finish, out: &mut BytesMut) {
        let finish_reason = Some(finish_reason(finish));
        self.chunk([Choice { index, text: String::new(), logprobs: None, finish_reason }], None, out);
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        if self.usage {
            let none: [(); 0] = [];
            self.chunk(none, Some(Usage::of(taken)), out);
        }
        out.put_slice(super::DONE);
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        super::error_event(out, error);
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let choices: Vec<_> = (sequences.iter().enumerate())
            .map(|(index, whole)| Choice {
                index,
                text: whole.text(),
                logprobs: self.logged(&whole.logprobs),
                finish_reason: Some(finish_reason(whole.finish)),
            })
            .collect();
        super::whole(&Object::new("text_completion", &self.head, choices, Some(Some(Usage::of(taken)))))
    }
}
