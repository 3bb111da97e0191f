//! `POST /api/chat`.

use super::fields;
use super::line_writer::{Form, LineWriter};
use super::messages::{MESSAGES, messages};
use crate::answer::Writer;
use crate::api::{Conversation, Fields, Limits, Options, ParsedRequest, offer};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head, openai};
use crate::error::ApiError;
use domain::{RequestId, Token};
use engine::text::PromptEnd;
use serde_json::Map;

/// Chats.
#[derive(Debug)]
pub(crate) struct Chat;

impl Dialect for Chat {
    fn path(&self) -> &'static str {
        "/api/chat"
    }

    fn realm(&self) -> &'static str {
        super::REALM
    }

    fn stream_type(&self) -> &'static str {
        super::LINES
    }

    fn operation(&self) -> &'static str {
        "chat"
    }

    fn prompt_field(&self) -> &'static str {
        MESSAGES
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
        let mut options = fields::take(&mut fields, card)?;
        let messages = messages(&mut fields)?;
        let mut variables = Map::new();
        let output = offer(openai::tools(&mut fields)?, openai::TOOLS, &mut variables, card)?;
        fields::think(&mut fields, &mut variables, card)?;
        fields.finish()?;
        // Without a message there is nothing to say: clients ask so for the model to be loaded, and it is.
        let Some(last) = messages.last() else { return Ok((Vec::new(), options)) };
        // A last message of the assistant is the beginning of the answer.
        let goes_on = last["role"] == "assistant" && last.get("tool_calls").is_none();
        let end = if goes_on { PromptEnd::OpenMessage } else { PromptEnd::Answer };
        output.shows_in(&mut options.special_tokens, card);
        let tokens = Conversation { messages, end, variables }.tokens(MESSAGES, card)?;
        let mut options = Options { goes_on, output: Some(output), ..options };
        options.set_grammar(openai::TOOLS, &tokens, card)?;
        Ok((vec![tokens], options))
    }

    fn writer(&self, head: Head, _asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        Box::new(LineWriter::new(Form::Chat, head, card))
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        super::error(error)
    }
}
