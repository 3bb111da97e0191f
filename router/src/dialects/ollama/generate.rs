//! `POST /api/generate`.

use super::fields;
use super::line_writer::{Form, LineWriter};
use crate::answer::Writer;
use crate::api::{Conversation, Fields, Limits, Options, Output, ParsedRequest, in_vocabulary};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use domain::{RequestId, Token};
use engine::text::PromptEnd;
use serde_json::{Map, Value, json};

/// The field that holds the prompt.
const PROMPT: &str = "prompt";
const SYSTEM: &str = "system";

/// Completions.
#[derive(Debug)]
pub(crate) struct Generate;

impl Dialect for Generate {
    fn path(&self) -> &'static str {
        "/api/generate"
    }

    fn realm(&self) -> &'static str {
        super::REALM
    }

    fn stream_type(&self) -> &'static str {
        super::LINES
    }

    fn operation(&self) -> &'static str {
        "text_completion"
    }

    fn prompt_field(&self) -> &'static str {
        PROMPT
    }

    /// Returns the name of the request: these answers have no id.
    fn answer_id(&self, id: RequestId) -> String {
        id.to_string()
    }

    fn parse(
        &self,
        mut fields: Fields<'_>,
        card: &ModelCard,
        _limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        fields::model(&mut fields, "model", card)?;
        let options = fields::take(&mut fields, card)?;
        let prompt = fields.string(PROMPT)?.unwrap_or_default();
        let system = fields.string(SYSTEM)?.filter(|system| !system.is_empty());
        let is_raw = fields.flag("raw")?.unwrap_or(false);
        let mut variables = Map::new();
        if is_raw {
            fields.neutral("think", &[json!(false)])?;
        } else {
            fields::think(&mut fields, &mut variables, card)?;
        }
        refuse_unsupported(&mut fields)?;
        fields.finish()?;
        match system {
            _ if prompt.is_empty() => Ok((Vec::new(), options)),
            Some(_) if is_raw => Err(ApiError::field(SYSTEM, "'system' has no place where 'raw' is true.")),
            _ if is_raw => raw(&prompt, options, card),
            system => turn(system.as_deref(), &prompt, variables, options, card),
        }
    }

    fn writer(&self, head: Head, _asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        Box::new(LineWriter::new(Form::Generate, head, card))
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        super::error(error)
    }
}

/// Returns the request of a text that goes on.
fn raw(prompt: &str, options: Options, card: &ModelCard) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
    let tokens = card.tokenizer.encode(prompt, true);
    let tokens = tokens.map_err(|error| ApiError::internal(format!("The tokenizer failed: {error}")))?;
    in_vocabulary(&tokens, PROMPT, card)?;
    let mut options = Options { goes_on: true, ..options };
    options.set_grammar(PROMPT, &[], card)?;
    Ok((vec![tokens], options))
}

/// Returns the request of a turn of the user, as the model's template writes it.
fn turn(
    system: Option<&str>,
    prompt: &str,
    variables: Map<String, Value>,
    mut options: Options,
    card: &ModelCard,
) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
    let system = system.map(|system| json!({ "role": "system", "content": system }));
    let user = json!({ "role": "user", "content": prompt });
    let messages = system.into_iter().chain([user]).collect();
    let tokens = Conversation { messages, end: PromptEnd::Answer, variables }.tokens(PROMPT, card)?;
    let output = Output::default();
    output.shows_in(&mut options.special_tokens, card);
    let mut options = Options { output: Some(output), ..options };
    options.set_grammar(PROMPT, &tokens, card)?;
    Ok((vec![tokens], options))
}

/// Refuses pictures, templates of clients, prompts with an end, and the tokens of earlier turns.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    for field in ["images", "context"] {
        fields.neutral(field, &[json!([])])?;
    }
    for field in ["suffix", "template"] {
        fields.neutral(field, &[json!("")])?;
    }
    Ok(())
}
