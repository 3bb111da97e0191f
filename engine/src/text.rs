//! Text: the tokens of a text, the text of tokens, the prompt of a chat, and stop strings.
//!
//! What is deliberately absent: the shapes of the OpenAI API (the router's).

mod config;
pub mod detokenizer;
mod gguf;
pub mod prompt;
pub mod stop;
pub mod template;
mod token_bytes;
pub mod tokenizer;

pub use config::TextConfigError;
pub use detokenizer::{Detokenizer, SpecialTokens};
pub use prompt::{PromptError, WrittenSpecials, encode_chat};
pub use stop::{StopStrings, Watched};
pub use template::strftime::civil;
pub use template::{ChatTemplate, InvalidTemplate, PromptEnd, TemplateError};
pub use token_bytes::DecoderError;
pub use tokenizer::{InvalidTokenizer, Tokenizer, TokenizerError};
