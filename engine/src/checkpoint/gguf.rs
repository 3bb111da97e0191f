//! GGUF files: one file with metadata, tokenizer and weights, in the form of llama.cpp
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>).
//!
//! The file is mapped; metadata and the list of tensors are read once and checked against the file's length, since a
//! file may be cut off or made to do harm. What is deliberately absent: what the values mean (`models::gguf` and
//! `text::gguf` know), and weights, which stay where they are in the map.

mod error;
mod format;
mod header;
mod names;
mod reader;
mod split;
#[cfg(test)]
mod tests;
mod value;

pub use error::GgufError;
pub(super) use format::{format, format_name};
pub(super) use names::hf_tensor;
pub use value::Value;

use super::FormatShare;
use super::files::WeightsFile;
use header::{GgufTensor, MAGIC, parse, parse_head};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// An open GGUF file, with the other parts of its model where that is split.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    pub(super) files: Vec<WeightsFile>,
    values: BTreeMap<String, Value>,
    pub(super) tensors: BTreeMap<String, GgufTensor>,
}

impl GgufFile {
    /// Returns whether `path` is a file that begins like one of these, or is named like one.
    pub fn is_at(path: &Path) -> bool {
        let begins = || {
            let mut magic = [0; MAGIC.len()];
            let read = std::fs::File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic));
            read.is_ok() && magic == *MAGIC
        };
        path.is_file() && (path.extension().is_some_and(|extension| extension == "gguf") || begins())
    }

    /// Opens the file and reads everything but weights. Any part stands for a model that is split.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let path = split::first_part(path);
        let first = WeightsFile::open_at(&path).map_err(|source| GgufError::Read { path: path.clone(), source })?;
        let (values, mut tensors) = parse(&first.map).map_err(|broken| broken.at(&path))?;
        let mut files = vec![first];
        split::add_parts(&path, &values, &mut files, &mut tensors)?;
        Ok(Self { path, files, values, tensors })
    }

    /// Reads a file of `length` bytes of which only the first have come, those with everything but weights among them.
    /// Of a model that is split, only the tensors of this file are known.
    ///
    /// # Errors
    ///
    /// As of [`GgufFile::open`]; one that says "cut off" may mean that too few bytes have come.
    pub fn open_head(path: &Path, length: u64) -> Result<Self, GgufError> {
        let head = WeightsFile::read_head(path).map_err(|source| GgufError::Read { path: path.to_owned(), source })?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (values, tensors) = parse_head(&head.map, length).map_err(|broken| broken.at(path))?;
        Ok(Self { path: path.to_owned(), files: vec![head], values, tensors })
    }

    /// Returns the number formats of all tensors, whatever they are for; the one of most bytes first.
    pub fn formats(&self) -> Vec<FormatShare> {
        let share = |tensor: &GgufTensor| {
            let known = format(tensor.kind);
            let name = known.map_or_else(|| format_name(tensor.kind), |format| format.to_string());
            FormatShare::of(name, known, tensor.range.len() as u64)
        };
        FormatShare::sum(self.tensors.values().map(share))
    }

    /// Returns the name that all files of a split model begin with; `None`: it is one file.
    pub fn split_stem(&self) -> Option<String> {
        split::stem(&self.path).filter(|_| self.files.len() > 1)
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns which form of model it holds, as `general.architecture` says it.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.text("general.architecture")?.ok_or_else(|| self.missing("general.architecture"))
    }

    /// Returns the whole number of `key` under the name of the architecture.
    pub fn hyperparameter(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.count(&format!("{}.{key}", self.architecture()?))
    }

    /// As [`GgufFile::hyperparameter`], where it must be there and not be 0.
    pub fn required(&self, key: &str) -> Result<u64, GgufError> {
        let key = format!("{}.{key}", self.architecture()?);
        match self.count(&key)? {
            Some(0) => Err(self.value_error(&key, 0, "above 0")),
            Some(count) => Ok(count),
            None => Err(self.missing(&key)),
        }
    }

    /// Numbers per head.
    pub fn head_dim(&self) -> Result<usize, GgufError> {
        let (hidden, heads) = (self.required("embedding_length")?, self.required("attention.head_count")?);
        let head_dim = self.hyperparameter("attention.key_length")?.unwrap_or(hidden / heads);
        match usize::try_from(head_dim).ok().filter(|size| *size > 0) {
            Some(head_dim) => Ok(head_dim),
            None => Err(self.value_error("attention.key_length", head_dim, "above 0")),
        }
    }

    /// Returns the value of `key`.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns the text of `key`.
    pub fn text(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a text", |value| if let Value::Text(text) = value { Some(text.as_str()) } else { None })
    }

    /// Returns the texts of `key`.
    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.typed(
            key,
            "a list of texts",
            |value| if let Value::Texts(texts) = value { Some(&texts[..]) } else { None },
        )
    }

    /// Returns the whole numbers of `key`.
    pub fn integers(&self, key: &str) -> Result<Option<&[i64]>, GgufError> {
        self.typed(key, "a list of whole numbers", |value| match value {
            Value::Integers(integers) => Some(&integers[..]),
            _ => None,
        })
    }

    /// Returns the numbers of `key`.
    pub fn numbers(&self, key: &str) -> Result<Option<&[f64]>, GgufError> {
        self.typed(key, "a list of numbers", |value| match value {
            Value::Numbers(numbers) => Some(&numbers[..]),
            _ => None,
        })
    }

    /// Returns the boolean of `key`.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "true or false", |value| if let Value::Flag(flag) = value { Some(*flag) } else { None })
    }

    /// Returns the number of `key`.
    pub fn number(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.typed(key, "a number", |value| match value {
            Value::Number(number) => Some(*number),
            Value::Integer(integer) => Some(*integer as f64),
            _ => None,
        })
    }

    /// Returns the whole number of `key`, not negative; where it is a list with one number for each layer, the one that
    /// all have.
    pub fn count(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "a whole number from 0, the same for all layers", |value| match value {
            Value::Integer(integer) => u64::try_from(*integer).ok(),
            Value::Integers(integers) => {
                let first = integers.first().filter(|first| integers.iter().all(|other| other == *first));
                first.and_then(|integer| u64::try_from(*integer).ok())
            }
            _ => None,
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.value_error(key, value, expected))
    }

    /// Returns an error: nothing at `key`.
    pub(crate) fn missing(&self, key: &str) -> GgufError {
        GgufError::Missing { path: self.path.clone(), key: key.to_owned() }
    }

    /// Returns an error: the value at `key` is not what it must be.
    pub(crate) fn value_error(
        &self,
        key: &str,
        found: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> GgufError {
        let (found, expected) = (found.to_string(), expected.to_string());
        GgufError::Value { path: self.path.clone(), key: key.to_owned(), found, expected }
    }

    /// Returns whether there is a tensor of this name.
    pub fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    /// Returns the shape of a tensor, slowest dimension first.
    pub fn shape(&self, tensor: &str) -> Option<&[usize]> {
        self.tensors.get(tensor).map(|tensor| &tensor.shape[..])
    }

    /// Returns the numbers of a small tensor, widened. `None`: there is none, or its format is not read. Of a file of
    /// which only the first bytes have come, and not these, the numbers are 1.
    pub fn widened(&self, tensor: &str) -> Option<Vec<f32>> {
        let tensor = self.tensors.get(tensor)?;
        let format = format(tensor.kind)?;
        let mut numbers = vec![1.0; tensor.shape.iter().product()];
        if let Some(bytes) = self.files[tensor.file].map.get(tensor.range.clone()) {
            format.dequantise(bytes, &mut numbers);
        }
        Some(numbers)
    }
}
