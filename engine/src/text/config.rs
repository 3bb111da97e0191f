//! What the companions of tokenizer.json say, in the spellings that are about: tokenizer_config.json,
//! special_tokens_map.json, and chat_template.json of models that read images too.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::{fs, io};
use tokenizers::AddedToken;

/// Names under which the two files keep one special token each.
const SPECIAL_NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// A file beside tokenizer.json cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextConfigError {
    /// It is there and cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is not a JSON object.
    #[error("{path} is not a JSON object: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What the reader of JSON found.
        source: serde_json::Error,
    },
    /// Its `added_tokens_decoder` is not an object.
    #[error("{path}: added_tokens_decoder: {source}")]
    AddedTokens {
        /// The file.
        path: PathBuf,
        /// What the reader of JSON found.
        source: serde_json::Error,
    },
    /// An entry of its `added_tokens_decoder` is not a token.
    #[error("{path}: added_tokens_decoder, token {id}: {source}")]
    AddedToken {
        /// The file.
        path: PathBuf,
        /// The key of the entry: the token's number, as the file writes it.
        id: String,
        /// What the reader of JSON found.
        source: serde_json::Error,
    },
}

/// All files together; empty where they are missing.
#[derive(Debug, Default)]
pub(super) struct TextConfig {
    /// Special tokens by name (`bos_token`, ...), as templates see them.
    pub(super) named: Map<String, Value>,
    /// The special tokens that have a name, and those of the lists of further ones.
    pub(super) special: Vec<AddedToken>,
    /// `added_tokens_decoder`: how tokens are found in a text, which counts more than what tokenizer.json says.
    pub(super) added: Vec<AddedToken>,
    /// Whether a plain text begins with BOS, where the configuration says so.
    pub(super) add_bos: Option<bool>,
    /// `chat_template`: a string, or a list of named ones.
    pub(super) chat_template: Option<Value>,
}

/// A token as the files write it where they say more than its text.
#[derive(Deserialize)]
struct TokenEntry {
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
}

impl From<TokenEntry> for AddedToken {
    fn from(entry: TokenEntry) -> Self {
        AddedToken::from(entry.content, entry.special)
            .single_word(entry.single_word)
            .lstrip(entry.lstrip)
            .rstrip(entry.rstrip)
            .normalized(entry.normalized.unwrap_or(!entry.special))
    }
}

impl TextConfig {
    /// Reads the files of the model directory `dir`. Errors: one is there but is not understood.
    pub(super) fn open(dir: &Path) -> Result<Self, TextConfigError> {
        let mut config = Self::default();
        // The first file that names a token decides.
        for file in ["tokenizer_config.json", "special_tokens_map.json", "chat_template.json"] {
            let path = dir.join(file);
            if let Some(mut object) = read_object(&path)? {
                config.take(&mut object, &path)?;
            }
        }
        Ok(config)
    }

    /// Text of the BOS token.
    pub(super) fn bos(&self) -> Option<&str> {
        self.named.get("bos_token").and_then(Value::as_str)
    }

    /// Text of the EOS token.
    pub(super) fn eos(&self) -> Option<&str> {
        self.named.get("eos_token").and_then(Value::as_str)
    }

    /// Adds what the object in the file `path` says and no earlier file said.
    fn take(&mut self, object: &mut Map<String, Value>, path: &Path) -> Result<(), TextConfigError> {
        for name in SPECIAL_NAMES {
            if let Some(token) = object.get(name).and_then(special_token) {
                self.named.entry(name).or_insert_with(|| Value::from(token.content.as_str()));
                self.special.push(token);
            }
        }
        // transformers 5 calls them `extra_special_tokens`, where it may also be an object of named ones.
        for list in ["additional_special_tokens", "extra_special_tokens"] {
            let tokens: Vec<AddedToken> = match object.get(list) {
                Some(Value::Array(tokens)) => tokens.iter().filter_map(special_token).collect(),
                Some(Value::Object(tokens)) => tokens.values().filter_map(special_token).collect(),
                _ => continue,
            };
            let texts = || tokens.iter().map(|token| token.content.as_str()).collect::<Vec<_>>();
            self.named.entry("additional_special_tokens").or_insert_with(|| Value::from(texts()));
            self.special.extend(tokens);
        }
        if let Some(added) = object.remove("added_tokens_decoder") {
            let path = || path.to_owned();
            let added: Map<String, Value> = serde_json::from_value(added)
                .map_err(|source| TextConfigError::AddedTokens { path: path(), source })?;
            for (id, token) in added {
                let token: TokenEntry = serde_json::from_value(token)
                    .map_err(|source| TextConfigError::AddedToken { path: path(), id, source })?;
                self.added.push(token.into());
            }
        }
        self.add_bos = self.add_bos.or(object.get("add_bos_token").and_then(Value::as_bool));
        self.chat_template = self.chat_template.take().or(object.remove("chat_template")).filter(|t| !t.is_null());
        Ok(())
    }
}

/// A special token that is written as a string, or as an object with `content`.
fn special_token(value: &Value) -> Option<AddedToken> {
    if let Some(text) = value.as_str() {
        return Some(AddedToken::from(text, true));
    }
    let entry = TokenEntry::deserialize(value).ok()?;
    Some(TokenEntry { special: true, ..entry }.into())
}

/// Returns the object in a JSON file; `None`: no file.
fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, TextConfigError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|source| TextConfigError::Json { path: path.to_owned(), source })
}

/// Returns the text in a file; `None`: no file.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, TextConfigError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextConfigError::Read { path: path.to_owned(), source }),
    }
}
