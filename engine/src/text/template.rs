//! Chat templates as Hugging Face means them.

use serde_json::{Map, Value};
use std::path::Path;

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {}

/// Why a chat cannot become a prompt.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template itself refuses these messages: the client's mistake.
    #[error("{0}")]
    Raised(String),
    /// A file cannot be read, or the template is not valid, or fails on these messages.
    #[error("{0}")]
    Invalid(String),
}

impl ChatTemplate {
    /// Opens the template of the model directory `dir`; `None`: it has none.
    pub fn open(_dir: &Path) -> Result<Option<ChatTemplate>, TemplateError> {
        Ok(None)
    }

    /// The prompt for `messages`. `extra`: more variables (`tools`, `enable_thinking`, ...).
    pub fn render(
        &self,
        _messages: &[Value],
        _add_generation_prompt: bool,
        _extra: &Map<String, Value>,
    ) -> Result<String, TemplateError> {
        Ok(String::new())
    }
}
