//! Text: the tokens of a text, the text of tokens, the prompt of a chat, and stop strings.
//!
//! What is deliberately absent: the shapes of the OpenAI API (the router's).

mod config;
pub mod detokenizer;
mod gguf;
mod pieces;
pub mod stop;
pub mod template;
pub mod tokenizer;

pub use config::TextConfigError;
pub use detokenizer::{Detokenizer, SpecialTokens};
pub use pieces::DecoderError;
pub use stop::{StopStrings, Watched};
pub use template::{ChatTemplate, InvalidTemplate, PromptEnd, TemplateError};
pub use tokenizer::{InvalidTokenizer, Tokenizer, TokenizerError};
