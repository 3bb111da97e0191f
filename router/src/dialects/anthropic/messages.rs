//! `POST /v1/messages`.

use super::message_writer::MessageWriter;
use super::prompt::{self, MESSAGES};
use super::tools::TOOLS;
use crate::answer::Writer;
use crate::api::{Fields, Limits, Options, ParsedRequest, at_least, stop_strings};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use domain::{RequestId, SamplingParams, Token};
use engine::text::SpecialTokens;
use serde_json::json;

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
        let mut special_tokens = SpecialTokens::Hidden;
        prompt.output.shows_in(&mut special_tokens, card);
        let mut options = Options {
            params,
            max_tokens: Some(max_tokens),
            stops,
            stream,
            include_usage: true,
            special_tokens,
            output: Some(prompt.output),
            structure: prompt.structure,
            goes_on: prompt.goes_on,
            ..Options::default()
        };
        options.set_grammar(TOOLS, &prompt.tokens, card)?;
        Ok((vec![prompt.tokens], options))
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        Box::new(MessageWriter::new(head, asked, card))
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
