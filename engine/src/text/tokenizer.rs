//! The tokenizer of a model directory (tokenizer.json, with what tokenizer_config.json and special_tokens_map.json add) or
//! of a GGUF file.

#[cfg(test)]
pub(super) mod tests;

use super::config::TextConfig;
use super::detokenizer::Detokenizer;
use super::gguf;
use super::pieces::{Beginning, Decoder, Pieces};
use crate::checkpoint::gguf::{GgufError, GgufFile};
use domain::Token;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::AddedToken;

/// A tokenizer. A clone is a reference to the same one; any number of threads may use it.
#[derive(Clone, Debug)]
pub struct Tokenizer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    encoder: tokenizers::Tokenizer,
    pieces: Pieces,
    /// BOS, and whether a plain text begins with it, where the configuration overrides tokenizer.json.
    bos: Option<(Token, bool)>,
}

/// Why there is no tokenizer, or no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A GGUF file is not understood.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A file is not understood.
    #[error("the tokenizer in {path} cannot be used: {reason}")]
    Invalid {
        /// The model directory or the GGUF file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A text has no tokens.
    #[error("the text cannot be tokenized: {0}")]
    Encode(String),
}

/// The part of tokenizer.json that the crate `tokenizers` keeps to itself.
#[derive(Deserialize)]
struct Extra {
    decoder: Option<Decoder>,
}

impl Tokenizer {
    /// Opens the tokenizer of a model directory or a GGUF file. Errors: no tokenizer.json, or a file is not understood, or
    /// its decoder is of a kind that text generation does not use.
    pub fn open(path: &Path) -> Result<Tokenizer, TokenizerError> {
        let built = if GgufFile::is_at(path) {
            let (json, config) = gguf::read(path)?;
            Self::build(json.to_string().as_bytes(), &config)
        } else {
            let json = path.join("tokenizer.json");
            let json = fs::read(&json).map_err(|source| TokenizerError::Read { path: json, source })?;
            TextConfig::open(path).and_then(|config| Self::build(&json, &config))
        };
        built.map_err(|reason| TokenizerError::Invalid { path: path.to_owned(), reason })
    }

    fn build(json: &[u8], config: &TextConfig) -> Result<Tokenizer, String> {
        let mut encoder = tokenizers::Tokenizer::from_bytes(json).map_err(|error| error.to_string())?;
        // Some files keep the settings of their training; a prompt is never cut or padded.
        encoder.with_truncation(None).map_err(|error| error.to_string())?;
        encoder.with_padding(None);
        let known = config.special.iter().filter(|text| encoder.token_to_id(text).is_some());
        let known: Vec<AddedToken> = known.map(|text| AddedToken::from(text.as_str(), true)).collect();
        encoder.add_special_tokens(known).map_err(|error| error.to_string())?;

        let extra: Extra = serde_json::from_slice(json).map_err(|error| format!("its decoder: {error}"))?;
        let decoder = extra.decoder.ok_or("it has no decoder")?;
        let added = encoder.get_added_tokens_decoder();
        let is_special = |token: &Token| added.get(token).is_some_and(|added| added.special);
        let vocab = encoder.get_vocab(true).into_iter().map(|(text, token)| (token, text, is_special(&token)));
        let pieces = Pieces::new(&vocab.collect::<Vec<_>>(), &decoder)?;
        let bos = config.bos().and_then(|text| encoder.token_to_id(text)).zip(config.add_bos);
        Ok(Self(Arc::new(Inner { encoder, pieces, bos })))
    }

    /// Tokens of `text`. Special tokens that are written in it become special tokens. `add_special`: with those that
    /// the tokenizer puts around a plain text (BOS); without them for the output of a chat template, which writes its
    /// own.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<Token>, TokenizerError> {
        let encoding = self.0.encoder.encode_fast(text, add_special);
        let encoding = encoding.map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let mut tokens = encoding.get_ids().to_vec();
        if let (true, Some((bos, add))) = (add_special, self.0.bos) {
            match (add, tokens.first() == Some(&bos)) {
                (true, false) => tokens.insert(0, bos),
                (false, true) if !self.begins_with(text, bos) => drop(tokens.remove(0)),
                _ => {}
            }
        }
        Ok(tokens)
    }

    /// Text of `tokens` without special tokens. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[Token]) -> String {
        let mut detokenizer = Detokenizer::new(self.clone(), &[]);
        let mut text: String = tokens.iter().map(|&token| detokenizer.push(token)).collect();
        text += &detokenizer.finish();
        text
    }

    /// One more than the highest token. The model may have more rows, which stand for nothing.
    pub fn vocab_size(&self) -> usize {
        self.0.pieces.len()
    }

    /// Bytes of `token` in the middle of a text; those of its name where it is special; none where there is no such
    /// token.
    pub fn token_bytes(&self, token: Token) -> &[u8] {
        self.0.pieces.bytes(token)
    }

    /// [`Self::token_bytes`] as text. Bytes that are no UTF-8 become U+FFFD.
    pub fn token_text(&self, token: Token) -> String {
        String::from_utf8_lossy(self.token_bytes(token)).into_owned()
    }

    /// Whether `token` is special: left out of text.
    pub fn is_special(&self, token: Token) -> bool {
        self.0.pieces.is_special(token)
    }

    /// The token that the vocabulary spells `text`.
    pub fn token_id(&self, text: &str) -> Option<Token> {
        self.0.encoder.token_to_id(text)
    }

    /// What happens at the beginning of a text.
    pub(super) fn beginning(&self) -> Beginning {
        self.0.pieces.beginning
    }

    /// Whether the client wrote the special token `token` at the beginning of `text` itself.
    fn begins_with(&self, text: &str, token: Token) -> bool {
        text.as_bytes().starts_with(self.token_bytes(token))
    }
}
