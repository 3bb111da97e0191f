//! The tokenizer of a model directory (tokenizer.json, with what tokenizer_config.json and special_tokens_map.json
//! add) or of a GGUF file.

#[cfg(test)]
pub(super) mod tests;

use super::config::{TextConfig, TextConfigError};
use super::gguf;
use super::token_bytes::{Beginning, Decoder, DecoderError, TokenBytes};
use crate::checkpoint::gguf::{GgufError, GgufFile};
use aho_corasick::AhoCorasick;
use domain::Token;
use serde::Deserialize;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::{AddedToken, Model, OffsetReferential, OffsetType, PreTokenizer};

/// A tokenizer. A clone is a reference to the same one; any number of threads may use it.
#[derive(Clone, Debug)]
pub struct Tokenizer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    encoder: tokenizers::Tokenizer,
    token_bytes: TokenBytes,
    /// Finds the names of special tokens in a text; `None`: only what a text is normalized to shows them.
    specials: Option<AhoCorasick>,
    /// BOS, and whether a plain text begins with it, where the configuration overrides tokenizer.json.
    bos: Option<(Token, bool)>,
    /// The EOS token that the configuration names.
    eos: Option<Token>,
}

/// Why there is no tokenizer, or no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file cannot be read.
    #[error("cannot read {path}, which says what the tokens of a text are")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
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
        /// What is wrong with it.
        #[source]
        reason: InvalidTokenizer,
    },
    /// A text has no tokens.
    #[error("the text cannot be tokenized: {0}")]
    Encode(#[source] tokenizers::Error),
}

/// What is wrong with the files of a tokenizer.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTokenizer {
    /// A companion of tokenizer.json cannot be used.
    #[error(transparent)]
    Config(#[from] TextConfigError),
    /// The crate `tokenizers` does not take tokenizer.json, or the tokens that its companions add.
    #[error("tokenizer.json: {0}")]
    Json(#[source] tokenizers::Error),
    /// The decoder in tokenizer.json is of a kind that is not supported.
    #[error("its decoder: {0}")]
    UnknownDecoder(#[source] serde_json::Error),
    /// The names of its special tokens cannot be looked for.
    #[error("its special tokens: {0}")]
    Specials(#[source] aho_corasick::BuildError),
    /// The decoder in tokenizer.json does not concatenate.
    #[error(transparent)]
    Decoder(#[from] DecoderError),
}

/// The part of tokenizer.json that the crate `tokenizers` keeps to itself.
#[derive(Deserialize)]
struct Extra {
    decoder: Option<Decoder>,
}

impl Tokenizer {
    /// Opens the tokenizer of a model directory or a GGUF file. Errors: no tokenizer.json, or a file is not
    /// understood, or its decoder is of a kind that text generation does not use.
    pub fn open(path: &Path) -> Result<Tokenizer, TokenizerError> {
        let built = if GgufFile::is_at(path) {
            let (json, config) = gguf::read(path)?;
            Self::build(json.to_string().as_bytes(), &config)
        } else {
            let json = path.join("tokenizer.json");
            let json = fs::read(&json).map_err(|source| TokenizerError::Read { path: json, source })?;
            TextConfig::open(path).map_err(InvalidTokenizer::from).and_then(|config| Self::build(&json, &config))
        };
        built.map_err(|reason| TokenizerError::Invalid { path: path.to_owned(), reason })
    }

    fn build(json: &[u8], config: &TextConfig) -> Result<Tokenizer, InvalidTokenizer> {
        let mut encoder = tokenizers::Tokenizer::from_bytes(json).map_err(InvalidTokenizer::Json)?;
        // Some files keep the settings of their training; a prompt is never cut or padded.
        encoder.with_truncation(None).map_err(InvalidTokenizer::Json)?;
        encoder.with_padding(None);
        let added = added_tokens(&encoder, config);
        encoder.add_tokens(added).map_err(InvalidTokenizer::Json)?;

        let extra: Extra = serde_json::from_slice(json).map_err(InvalidTokenizer::UnknownDecoder)?;
        let added = encoder.get_added_tokens_decoder();
        let is_special = |token: &Token| added.get(token).is_some_and(|added| added.special);
        let vocab = encoder.get_vocab(true).into_iter().map(|(text, token)| (token, text, is_special(&token)));
        let token_bytes = TokenBytes::new(&vocab.collect::<Vec<_>>(), extra.decoder.as_ref())?;
        let bos = config.bos().and_then(|text| encoder.token_to_id(text)).zip(config.add_bos);
        let eos = config.eos().and_then(|text| encoder.token_to_id(text));
        let specials = specials(&encoder).map_err(InvalidTokenizer::Specials)?;
        Ok(Self(Arc::new(Inner { encoder, token_bytes, specials, bos, eos })))
    }

    /// Returns the tokens of `text`. Special tokens that are written in it become special tokens. `add_special`: with
    /// those that the tokenizer puts around a plain text (BOS); without them for the output of a chat template, which
    /// writes its own.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<Token>, TokenizerError> {
        let encoding = self.0.encoder.encode_fast(text, add_special).map_err(TokenizerError::Encode)?;
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

    /// Returns the tokens of `text`, in which `mark` parts the names of special tokens that are to stay text. The marks
    /// are no part of what is tokenized.
    ///
    /// Source: `tokenizers`, `TokenizerImpl::encode_single_sequence`, with one step more: the marks are removed between
    /// finding the special tokens and all that follows. So all else is the same as without marks.
    pub(super) fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<Token>, TokenizerError> {
        let encoder = &self.0.encoder;
        let encode = || {
            let mut parts = encoder.get_added_vocabulary().extract_and_normalize(encoder.get_normalizer(), text);
            parts.normalize(|part| {
                part.filter(|c| c != mark);
                Ok(())
            })?;
            if let Some(pre_tokenizer) = encoder.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut parts)?;
            }
            encoder.get_model().tokenize_in_pretokenized(&mut parts, None)?;
            Ok(parts.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
        };
        encode().map_err(TokenizerError::Encode)
    }

    /// Returns where `text` has what becomes a special token. Spaces around it may belong to it.
    pub(super) fn special_ranges(&self, text: &str) -> Vec<Range<usize>> {
        if self.0.specials.as_ref().is_some_and(|specials| !specials.is_match(text)) {
            return Vec::new();
        }
        let encoder = &self.0.encoder;
        let parts = encoder.get_added_vocabulary().extract_and_normalize(encoder.get_normalizer(), text);
        let parts = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let is_special =
            |tokens: &Option<Vec<tokenizers::Token>>| tokens.iter().flatten().any(|token| self.is_special(token.id));
        let special = parts.into_iter().filter(|(_, _, tokens)| is_special(tokens));
        special.map(|(_, (begin, end), _)| begin..end).collect()
    }

    /// One more than the highest token. The model may have more rows, which stand for nothing.
    pub fn vocab_size(&self) -> usize {
        self.0.token_bytes.len()
    }

    /// Bytes of `token` in the middle of a text, where a special token is shown by its name; none where there is
    /// no such token.
    pub fn token_bytes(&self, token: Token) -> &[u8] {
        self.0.token_bytes.bytes(token)
    }

    /// [`Self::token_bytes`] as text. Bytes that are no UTF-8 become U+FFFD.
    pub fn token_text(&self, token: Token) -> String {
        String::from_utf8_lossy(self.token_bytes(token)).into_owned()
    }

    /// Returns whether `token` is special: left out of text.
    pub fn is_special(&self, token: Token) -> bool {
        self.0.token_bytes.is_special(token)
    }

    /// Returns the token that the vocabulary spells `text`.
    pub fn token_id(&self, text: &str) -> Option<Token> {
        self.0.encoder.token_to_id(text)
    }

    /// The token that ends a text, as the tokenizer's own files name it. config.json and generation_config.json
    /// may name others.
    pub fn eos(&self) -> Option<Token> {
        self.0.eos
    }

    /// Returns what happens at the beginning of a text.
    pub(super) fn beginning(&self) -> Beginning {
        self.0.token_bytes.beginning
    }

    /// Returns whether the client wrote the special token `token` at the beginning of `text` itself.
    fn begins_with(&self, text: &str, token: Token) -> bool {
        self.0.encoder.id_to_token(token).is_some_and(|name| text.starts_with(&name))
    }
}

/// Returns what finds the names of special tokens. `None`: some of them are looked for in what a text is normalized to.
fn specials(encoder: &tokenizers::Tokenizer) -> Result<Option<AhoCorasick>, aho_corasick::BuildError> {
    let added = encoder.get_added_tokens_decoder();
    let special = || added.values().filter(|token| token.special && !token.content.is_empty());
    if encoder.get_normalizer().is_some() && special().any(|token| token.normalized) {
        return Ok(None);
    }
    AhoCorasick::new(special().map(|token| token.content.as_str())).map(Some)
}

/// Returns the tokens that `config` adds to those of tokenizer.json, or describes otherwise. A token that is special by
/// its name alone keeps the flags that it has.
///
/// Source: Hugging Face transformers, `tokenization_utils_tokenizers.py`, `TokenizersBackend.__init__`.
fn added_tokens(encoder: &tokenizers::Tokenizer, config: &TextConfig) -> Vec<AddedToken> {
    let is_known = |token: &&AddedToken| encoder.token_to_id(&token.content).is_some();
    let mut tokens: Vec<AddedToken> = config.added.iter().filter(is_known).cloned().collect();
    let before = encoder.get_added_tokens_decoder();
    for special in config.special.iter().filter(is_known) {
        let before = encoder.token_to_id(&special.content).and_then(|id| before.get(&id));
        match (tokens.iter_mut().find(|token| token.content == special.content), before) {
            (Some(token), _) => token.special = true,
            (None, Some(token)) => tokens.push(token.clone().special(true)),
            (None, None) => tokens.push(special.clone()),
        }
    }
    tokens
}
