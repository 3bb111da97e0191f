//! `POST /v1/messages`.

use super::prompt::{self, MESSAGES};
use crate::answer::{Delta, Finish, Taken, Whole, Writer};
use crate::api::{Fields, Limits, Options, ParsedRequest, at_least, stop_strings};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use bytes::{BufMut, BytesMut};
use domain::{RequestId, SamplingParams, Token};
use engine::text::SpecialTokens;
use serde::Serialize;
use serde_json::{Value, json};

/// Messages.
#[derive(Debug)]
pub(crate) struct Messages;

impl Dialect for Messages {
    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn operation(&self) -> &'static str {
        "chat"
    }

    fn prompt_field(&self) -> &'static str {
        MESSAGES
    }

    fn answer_id(&self, id: RequestId) -> String {
        format!("msg_{:016x}", id.0)
    }

    fn parse(
        &self,
        mut fields: Fields<'_>,
        card: &ModelCard,
        _limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        let max_tokens = at_least(&mut fields, "max_tokens", 1)?.ok_or_else(|| ApiError::missing("max_tokens"))?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        let stops = stop_strings(&mut fields, "stop_sequences")?;
        let params = params(&mut fields, card, max_tokens)?;
        take_inert(&mut fields)?;
        let prompt = prompt::take(&mut fields, card)?;
        fields.finish()?;
        let options = Options {
            params,
            max_tokens: Some(max_tokens),
            choices: 1,
            stops,
            seed: None,
            stream,
            include_usage: true,
            special_tokens: SpecialTokens::Hidden,
            goes_on: prompt.goes_on,
        };
        Ok((vec![prompt.tokens], options))
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, _card: &ModelCard) -> Box<dyn Writer> {
        Box::new(MessageWriter { head, stops: asked.options.stops.clone(), is_open: false, stop: None })
    }

    fn error(&self, error: &ApiError, request: RequestId) -> Vec<u8> {
        super::error(error, request)
    }
}

/// Returns how to sample.
fn params(fields: &mut Fields<'_>, card: &ModelCard, max_tokens: u32) -> Result<SamplingParams, ApiError> {
    let mut params = SamplingParams { max_tokens, stop_tokens: card.eos.clone(), ..card.sampling.clone() };
    params.stop_tokens.sort_unstable();
    params.stop_tokens.dedup();
    if let Some(temperature) = fields.number("temperature", 0.0..=1.0)? {
        params.temperature = temperature;
    }
    if let Some(top_p) = fields.number("top_p", 0.0..=1.0)? {
        // The smallest set that reaches nothing is empty; what is meant is the most probable token.
        params.top_p = top_p.max(f32::MIN_POSITIVE);
    }
    if let Some(top_k) = at_least(fields, "top_k", 0)? {
        params.top_k = top_k;
    }
    Ok(params)
}

/// Takes fields that say whom a request is for or how it is to be billed. The answer does not depend on them.
fn take_inert(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    const METADATA: &str = "metadata";
    if let Some(raw) = fields.raw(METADATA) {
        let mut metadata = Fields::of_field(raw, METADATA)?;
        metadata.string("user_id")?;
        metadata.finish()?;
    }
    fields.neutral("service_tier", &[json!("auto"), json!("standard_only")])?;
    fields.string("inference_geo")?;
    Ok(())
}

/// Writes an answer.
struct MessageWriter {
    head: Head,
    /// The strings that end it.
    stops: Vec<String>,
    /// The block of its text has begun.
    is_open: bool,
    /// Why it ended.
    stop: Option<Finish>,
}

/// An answer.
#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'a str,
    content: &'a [Block<'a>],
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
    usage: Usage,
}

#[derive(Serialize)]
struct Block<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// What a request took. Tokens that a cache had are not among `input_tokens`.
#[derive(Serialize)]
struct Usage {
    input_tokens: usize,
    cache_creation_input_tokens: usize,
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

impl Usage {
    fn of(taken: Taken) -> Self {
        Self {
            input_tokens: taken.prompt_tokens - taken.cached_tokens,
            // Writing to the cache costs nothing of its own here, and is not told apart.
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: taken.cached_tokens,
            output_tokens: taken.output_tokens,
        }
    }
}

impl MessageWriter {
    fn message<'a>(&'a self, content: &'a [Block<'a>], stop: Option<Finish>, taken: Taken) -> Message<'a> {
        Message {
            id: &self.head.id,
            kind: "message",
            role: "assistant",
            model: &self.head.model,
            content,
            stop_reason: stop.map(stop_reason),
            stop_sequence: self.stop_sequence(stop),
            usage: Usage::of(taken),
        }
    }

    /// Returns the string that ended the answer, if one did.
    fn stop_sequence(&self, stop: Option<Finish>) -> Option<&str> {
        match stop {
            Some(Finish::StopString(at)) => Some(&self.stops[at]),
            Some(Finish::Stop | Finish::Length) | None => None,
        }
    }

    fn open(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.is_open, true) {
            let block = Block { kind: "text", text: "" };
            event(out, "content_block_start", json!({ "index": 0, "content_block": block }));
        }
    }
}

/// Returns `stop_reason`.
fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::StopString(_) => "stop_sequence",
        Finish::Length => "max_tokens",
    }
}

/// Appends an event: `fields` and its type.
fn event(out: &mut BytesMut, kind: &'static str, mut fields: Value) {
    fields["type"] = Value::from(kind);
    out.put_slice(b"event: ");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\ndata: ");
    serde_json::to_writer(out.writer(), &fields).expect("the fields are JSON, and the buffer grows");
    out.put_slice(b"\n\n");
}

impl Writer for MessageWriter {
    fn begin(&mut self, taken: Taken, out: &mut BytesMut) {
        event(out, "message_start", json!({ "message": self.message(&[], None, taken) }));
    }

    fn delta(&mut self, _sequence: usize, delta: &Delta, out: &mut BytesMut) {
        self.open(out);
        let delta = json!({ "type": "text_delta", "text": delta.text });
        event(out, "content_block_delta", json!({ "index": 0, "delta": delta }));
    }

    fn finish(&mut self, _sequence: usize, finish: Finish, out: &mut BytesMut) {
        self.open(out);
        self.stop = Some(finish);
        event(out, "content_block_stop", json!({ "index": 0 }));
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        let delta =
            json!({ "stop_reason": self.stop.map(stop_reason), "stop_sequence": self.stop_sequence(self.stop) });
        event(out, "message_delta", json!({ "delta": delta, "usage": Usage::of(taken) }));
        event(out, "message_stop", json!({}));
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        out.put_slice(b"event: error\ndata: ");
        out.put_slice(&super::error(error, self.head.request));
        out.put_slice(b"\n\n");
    }

    fn keep_alive(&self, out: &mut BytesMut) {
        event(out, "ping", json!({}));
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let Whole { text, finish, .. } = &sequences[0];
        let content = [Block { kind: "text", text }];
        serde_json::to_vec(&self.message(&content, Some(*finish), taken)).expect("an answer has string keys")
    }
}
