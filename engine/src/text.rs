//! Text: tokens of a text, text of tokens, prompts of chats, and stop strings.

pub mod detokenizer;
pub mod stop;
pub mod template;
pub mod tokenizer;

pub use detokenizer::Detokenizer;
pub use stop::{StopStrings, Watched};
pub use template::{ChatTemplate, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};
