//! Reading config.json: one value at a time, checked, in the spelling of transformers 4 and of 5.
//!
//! What is deliberately absent: what a family makes of the values (that is in the family's file).

use super::refusal::Refusal;
use crate::spec::{Activation, Attention};
use domain::{Dtype, Token};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Key of whether the output projection is the embedding.
pub(crate) const TIED: &str = "tie_word_embeddings";
/// Largest width or count that a config may name; beyond it the file is broken rather than the model large.
pub(crate) const WIDTH_MAX: u64 = 1 << 24;
/// Most layers; a layer's index must fit 16 bits.
pub(crate) const LAYERS_MAX: u64 = 1 << 12;
/// Longest context in tokens.
pub(crate) const CONTEXT_MAX: u64 = 1 << 27;
/// Most numbers per head.
pub(crate) const HEAD_DIM_MAX: u64 = 1 << 10;

/// Activations that are computed, as config.json spells them.
const ACTIVATIONS: [(&str, Activation); 3] =
    [("silu", Activation::Silu), ("swish", Activation::Silu), ("gelu_pytorch_tanh", Activation::GeluTanh)];

/// Why a config.json was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is no JSON object.
    #[error("it is not a JSON object: {0}")]
    Syntax(String),
    /// A value is missing.
    #[error("{key} is missing")]
    Missing {
        /// Its key.
        key: String,
    },
    /// A value is not what it must be.
    #[error("{key} is {found}, but must be {expected}")]
    Value {
        /// Its key.
        key: String,
        /// What stands there, as JSON.
        found: String,
        /// What would be understood.
        expected: String,
    },
    /// It asks for something that is not computed here.
    #[error("{key} is {found}, which is not supported; supported: {supported}")]
    Unsupported {
        /// Its key.
        key: String,
        /// What stands there, as JSON.
        found: String,
        /// What is supported.
        supported: String,
    },
    /// Its model is not one that is served.
    #[error(transparent)]
    NotServed(Box<Refusal>),
}

impl From<Refusal> for ConfigError {
    fn from(refusal: Refusal) -> Self {
        Self::NotServed(Box::new(refusal))
    }
}

/// A config.json, or another object in it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) values: Map<String, Value>,
    /// Put before keys in errors: the object's own key, or nothing for the whole file.
    prefix: String,
}

impl Config {
    /// Parses the bytes of a JSON file.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        match serde_json::from_slice(json) {
            Ok(Value::Object(values)) => Ok(Self { values, prefix: String::new() }),
            Ok(other) => Err(ConfigError::Syntax(format!("it holds {}", shorten(&other)))),
            Err(error) => Err(ConfigError::Syntax(error.to_string())),
        }
    }

    /// Returns the value at `key`; `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// Returns whether `key` is there, be it `null`.
    pub fn names(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Returns all keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Returns the object at `key`.
    pub fn object(&self, key: &str) -> Result<Option<Config>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(values)) => {
                Ok(Some(Config { values: values.clone(), prefix: format!("{}{key}.", self.prefix) }))
            }
            Some(other) => Err(self.value_error(key, other, "an object")),
        }
    }

    /// Returns the whole number at `key`.
    pub fn count(&self, key: &str, range: RangeInclusive<u64>) -> Result<usize, ConfigError> {
        self.count_or(key, range, None)
    }

    /// Returns the whole number at `key`; where there is none, `default`, and without one an error.
    pub fn count_or(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        default: Option<usize>,
    ) -> Result<usize, ConfigError> {
        let Some(value) = self.get(key) else {
            return default.ok_or_else(|| self.missing(key));
        };
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        value
            .as_u64()
            .filter(|count| range.contains(count))
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| self.value_error(key, value, expected()))
    }

    /// Returns the positive, finite number at `key`.
    pub fn positive(&self, key: &str, default: Option<f64>) -> Result<f64, ConfigError> {
        let Some(value) = self.get(key) else {
            return default.ok_or_else(|| self.missing(key));
        };
        value
            .as_f64()
            .filter(|number| *number > 0.0 && number.is_finite())
            .ok_or_else(|| self.value_error(key, value, "a number above 0"))
    }

    /// Returns the finite number from 0 at `key`.
    pub fn not_negative(&self, key: &str, default: f64) -> Result<f64, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let number = value.as_f64().filter(|number| *number >= 0.0 && number.is_finite());
        number.ok_or_else(|| self.value_error(key, value, "a number from 0"))
    }

    /// The whole number at `key`, where -1 stands for 0: both are spellings of "off".
    pub fn count_or_off(&self, key: &str) -> Result<Option<u32>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let range = -1.0..=f64::from(u32::MAX);
        let whole = value.as_f64().filter(|number| number.fract() == 0.0 && range.contains(number));
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        whole.map(|number| Some(number.max(0.0) as u32)).ok_or_else(|| self.value_error(key, value, expected()))
    }

    /// Returns the boolean at `key`.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| self.value_error(key, value, "true or false")),
        }
    }

    /// Returns the text at `key`.
    pub fn text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| self.value_error(key, value, "a text")),
        }
    }

    /// Returns the token or the list of tokens at `key`, each below `vocab`.
    pub fn tokens(&self, key: &str, vocab: usize) -> Result<Vec<Token>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let token = |value: &Value| value.as_u64().filter(|id| *id < vocab as u64).map(|id| id as Token);
        match value {
            Value::Array(values) => values.iter().map(token).collect(),
            value => token(value).map(|token| vec![token]),
        }
        .ok_or_else(|| self.value_error(key, value, format!("a token or a list of tokens below vocab_size ({vocab})")))
    }

    /// Returns the activation that `key` names.
    pub fn activation(&self, key: &str, default: Activation) -> Result<Activation, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let known = ACTIVATIONS.into_iter().find(|(name, _)| value.as_str() == Some(name));
        known
            .map(|(_, activation)| activation)
            .ok_or_else(|| self.unsupported(key, value, ACTIVATIONS.map(|(name, _)| name).join(", ")))
    }

    /// Returns the positive number at `key`; `null` stands for `None`, and where there is no such key, `default`.
    pub fn positive_or_null(&self, key: &str, default: Option<f64>) -> Result<Option<f64>, ConfigError> {
        match self.get(key) {
            Some(_) => self.positive(key, None).map(Some),
            None if self.names(key) => Ok(None),
            None => Ok(default),
        }
    }

    /// Returns an object without values, where `key` has none.
    pub(super) fn empty(&self, key: &str) -> Config {
        Config { values: Map::new(), prefix: format!("{}{key}.", self.prefix) }
    }

    /// The number format of the weights as the config says; `None` where it does not.
    pub fn dtype(&self) -> Result<Option<Dtype>, ConfigError> {
        let key = if self.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
        // Some tools write `torch.bfloat16`.
        match self.text(key)?.map(|name| name.strip_prefix("torch.").unwrap_or(name)) {
            None | Some("auto") => Ok(None),
            Some("float32") => Ok(Some(Dtype::F32)),
            Some("float16") => Ok(Some(Dtype::F16)),
            Some("bfloat16") => Ok(Some(Dtype::Bf16)),
            Some(other) => Err(self.unsupported(key, &Value::from(other), "float32, float16, bfloat16")),
        }
    }

    /// The attention of every layer of a family that has `use_sliding_window` and says by `layer_types`, or
    /// else by `max_window_layers`, which layers have it.
    pub fn attention_by_layer(&self, layers: usize, first_default: usize) -> Result<Vec<Attention>, ConfigError> {
        let used = self.flag("use_sliding_window", false)?;
        let window = if used { self.window("sliding_window")? } else { None };
        let windowed = match self.layer_types(layers)? {
            Some(windowed) => windowed,
            None => {
                let first = self.count_or("max_window_layers", 0..=u64::MAX, Some(first_default))?;
                (0..layers).map(|layer| layer >= first).collect()
            }
        };
        Ok(windowed.into_iter().map(|windowed| window.filter(|_| windowed).into()).collect())
    }

    /// Returns whether each layer has a window, as `layer_types` says it.
    pub fn layer_types(&self, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
        let Some(types) = self.get("layer_types") else { return Ok(None) };
        let types = types.as_array().filter(|types| types.len() == layers).ok_or_else(|| {
            self.value_error("layer_types", types, format!("a list with one entry for each of the {layers} layers"))
        })?;
        let windowed = |kind: &Value| match kind.as_str() {
            Some("full_attention") => Ok(false),
            Some("sliding_attention") => Ok(true),
            _ => Err(self.unsupported("layer_types", kind, "full_attention, sliding_attention")),
        };
        types.iter().map(windowed).collect::<Result<_, _>>().map(Some)
    }

    /// Returns the window in tokens at `key`.
    pub fn window(&self, key: &str) -> Result<Option<u32>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let tokens = value.as_u64().filter(|tokens| (1..=CONTEXT_MAX).contains(tokens));
        tokens
            .map(|tokens| Some(tokens as u32))
            .ok_or_else(|| self.value_error(key, value, format!("null or a whole number from 1 to {CONTEXT_MAX}")))
    }

    /// Returns an error: nothing at `key`.
    pub fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing { key: format!("{}{key}", self.prefix) }
    }

    /// Returns an error: the value at `key` is broken.
    pub fn value_error(&self, key: &str, found: &Value, expected: impl Display) -> ConfigError {
        let key = format!("{}{key}", self.prefix);
        ConfigError::Value { key, found: shorten(found), expected: expected.to_string() }
    }

    /// Returns an error: the value at `key` is sound but not supported.
    pub fn unsupported(&self, key: &str, found: &Value, supported: impl Display) -> ConfigError {
        let key = format!("{}{key}", self.prefix);
        ConfigError::Unsupported { key, found: shorten(found), supported: supported.to_string() }
    }
}

/// The value as JSON, cut where it is long.
fn shorten(value: &Value) -> String {
    /// Characters of a value that an error shows.
    const SHOWN_MAX: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
