//! What tokenizer_config.json and special_tokens_map.json say, in the spellings that are about.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;
use std::{fs, io};

/// Names under which the two files keep one special token each.
const SPECIAL_NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Both files together; empty where they are missing.
#[derive(Debug, Default)]
pub(super) struct TextConfig {
    /// Special tokens by name (`bos_token`, ...), as templates see them.
    pub(super) named: Map<String, Value>,
    /// All special tokens.
    pub(super) special: Vec<String>,
    /// Whether a plain text begins with BOS, where the configuration says so.
    pub(super) add_bos: Option<bool>,
    /// `chat_template`: a string, or a list of named ones.
    pub(super) chat_template: Option<Value>,
}

/// An entry of `added_tokens_decoder`.
#[derive(Deserialize)]
struct AddedToken {
    content: String,
    #[serde(default)]
    special: bool,
}

impl TextConfig {
    /// Reads the files of the model directory `dir`. Errors, in words: one is there but is not understood.
    pub(super) fn open(dir: &Path) -> Result<Self, String> {
        let mut config = Self::default();
        // The first file that names a token decides.
        for file in ["tokenizer_config.json", "special_tokens_map.json"] {
            if let Some(mut object) = read_object(&dir.join(file))? {
                config.take(&mut object).map_err(|error| format!("{file}: {error}"))?;
            }
        }
        Ok(config)
    }

    /// Text of the BOS token.
    pub(super) fn bos(&self) -> Option<&str> {
        self.named.get("bos_token").and_then(Value::as_str)
    }

    fn take(&mut self, object: &mut Map<String, Value>) -> Result<(), String> {
        for name in SPECIAL_NAMES {
            if let Some(text) = object.get(name).and_then(token_text) {
                self.special.push(text.to_owned());
                self.named.entry(name).or_insert_with(|| Value::from(text));
            }
        }
        // transformers 5 calls them `extra_special_tokens`, where it may also be an object of named ones.
        for list in ["additional_special_tokens", "extra_special_tokens"] {
            let texts: Vec<String> = match object.get(list) {
                Some(Value::Array(tokens)) => tokens.iter().filter_map(token_text).map(str::to_owned).collect(),
                Some(Value::Object(tokens)) => tokens.values().filter_map(token_text).map(str::to_owned).collect(),
                _ => continue,
            };
            self.named.entry("additional_special_tokens").or_insert_with(|| Value::from(texts.clone()));
            self.special.extend(texts);
        }
        if let Some(added) = object.remove("added_tokens_decoder") {
            let added: Map<String, Value> =
                serde_json::from_value(added).map_err(|error| format!("added_tokens_decoder: {error}"))?;
            for (id, token) in added {
                let token: AddedToken =
                    serde_json::from_value(token).map_err(|error| format!("added_tokens_decoder {id}: {error}"))?;
                self.special.extend(token.special.then_some(token.content));
            }
        }
        self.add_bos = self.add_bos.or(object.get("add_bos_token").and_then(Value::as_bool));
        self.chat_template = self.chat_template.take().or(object.remove("chat_template")).filter(|t| !t.is_null());
        Ok(())
    }
}

/// The text of a token that is written as a string or as an object with `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// The object in a JSON file; `None`: no file.
pub(super) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, String> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

/// The text in a file; `None`: no file.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}
