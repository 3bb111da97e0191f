//! The messages of a chat, as the model's template takes them.

use super::options::in_vocabulary;
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use engine::text::{PromptEnd, PromptError, TemplateError, encode_chat};
use serde_json::{Map, Value};

/// What a chat's prompt is made of.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Each with `role` and `content`, in the words of Hugging Face's templates.
    pub(crate) messages: Vec<Value>,
    /// How the prompt ends.
    pub(crate) end: PromptEnd,
    /// More variables for the template.
    pub(crate) variables: Map<String, Value>,
}

impl Conversation {
    /// Returns the prompt in tokens. Takes time with its length. Errors name `field`, which holds the messages: the
    /// model has no template, or its template refuses them.
    pub(crate) fn tokens(&self, field: &str, card: &ModelCard) -> Result<Vec<Token>, ApiError> {
        let Some(template) = &card.template else {
            let message = format!("The model '{}' has no chat template; use /v1/completions.", card.name);
            return Err(ApiError::unsupported(field, message));
        };
        let said = (&self.messages[..], &self.variables);
        let tokens = encode_chat(template, &card.tokenizer, said, self.end, card.specials);
        let tokens = tokens.map_err(|error| match error {
            PromptError::Template(TemplateError::Raised(why)) => {
                ApiError::field(field, format!("The model's chat template refuses these messages: {why}"))
            }
            PromptError::Template(TemplateError::Invalid(why)) => {
                ApiError::internal(format!("The model's chat template failed: {why}"))
            }
            PromptError::Tokenizer(error) => ApiError::internal(format!("The tokenizer failed: {error}")),
            error @ (PromptError::Template(_) | PromptError::NoMark) => ApiError::field(field, error.to_string()),
        })?;
        // A tokenizer may know tokens that its model does not, such as those of pictures.
        in_vocabulary(&tokens, field, card)?;
        Ok(tokens)
    }
}
