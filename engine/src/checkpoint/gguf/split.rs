//! Models that are split into several files, as llama.cpp's `gguf-split` does it: `stem-00001-of-00003.gguf` and so on.
//! The first one has all metadata; each has a list of the tensors that lie in it.

use super::error::GgufError;
use super::header::{GgufTensor, parse};
use super::value::Value;
use crate::checkpoint::files::WeightsFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most files of a model.
const PARTS_MAX: u64 = 1024;
/// Digits of a part's number in its name.
const DIGITS: usize = 5;

/// Returns the first part of the model that `path` is a part of: `path` itself, if it is not split.
pub(super) fn first_part(path: &Path) -> PathBuf {
    match PartName::of(path) {
        Some(name) => path.with_file_name(name.part(1)),
        None => path.to_owned(),
    }
}

/// Returns the name that the parts begin with, if `path` is named like a part.
pub(super) fn stem(path: &Path) -> Option<String> {
    PartName::of(path).map(|name| name.stem)
}

/// Adds the tensors of the other parts to those of the first one, which is all of `files`.
///
/// # Errors
///
/// A part is missing, cannot be read, or belongs to another model.
pub(super) fn add_parts(
    path: &Path,
    values: &BTreeMap<String, Value>,
    files: &mut Vec<WeightsFile>,
    tensors: &mut BTreeMap<String, GgufTensor>,
) -> Result<(), GgufError> {
    let parts = match count(path, values, "split.count")? {
        None | Some(0 | 1) => return Ok(()),
        Some(parts) if parts > PARTS_MAX => {
            return Err(value(path, "split.count", parts, format!("{PARTS_MAX} at most")));
        }
        Some(parts) => parts,
    };
    let name = PartName::of(path).filter(|name| name.parts == parts);
    let named = format!("the count in the file's name, as in model-00001-of-{parts:05}.gguf");
    let name = name.ok_or_else(|| value(path, "split.count", parts, named))?;
    for number in 2..=parts {
        let part = path.with_file_name(name.part(number));
        if !part.is_file() {
            return Err(GgufError::MissingPart { path: part, parts });
        }
        let file = WeightsFile::open_at(&part).map_err(|source| GgufError::Read { path: part.clone(), source })?;
        let (own, more) = parse(&file.map).map_err(|broken| broken.at(&part))?;
        let place = count(&part, &own, "split.no")?;
        if place != Some(number - 1) || count(&part, &own, "split.count")? != Some(parts) {
            let found = place.map_or_else(|| "not there".to_owned(), |place| place.to_string());
            return Err(value(&part, "split.no", found, format!("{}, of {parts} parts", number - 1)));
        }
        for (tensor, mut place) in more {
            place.file = files.len();
            if tensors.insert(tensor.clone(), place).is_some() {
                let reason = "another part has it as well".to_owned();
                return Err(GgufError::Broken { path: part, what: tensor, reason });
            }
        }
        files.push(file);
    }
    match count(path, values, "split.tensors.count")? {
        Some(all) if all != tensors.len() as u64 => {
            Err(value(path, "split.tensors.count", all, format!("{}, which its parts have", tensors.len())))
        }
        _ => Ok(()),
    }
}

/// A file's name, in parts.
struct PartName {
    stem: String,
    parts: u64,
}

impl PartName {
    /// Splits `stem-00002-of-00005.gguf`.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, parts) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| (text.len() == DIGITS).then(|| text.parse::<u64>().ok()).flatten();
        digits(number)?;
        Some(Self { stem: stem.to_owned(), parts: digits(parts)? })
    }

    /// Returns the name of a part.
    fn part(&self, number: u64) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.parts)
    }
}

/// Returns a whole number of the metadata.
fn count(path: &Path, values: &BTreeMap<String, Value>, key: &str) -> Result<Option<u64>, GgufError> {
    match values.get(key) {
        None => Ok(None),
        Some(Value::Integer(count)) if *count >= 0 => Ok(Some(*count as u64)),
        Some(other) => Err(value(path, key, other, "a whole number from 0")),
    }
}

fn value(path: &Path, key: &str, found: impl ToString, expected: impl ToString) -> GgufError {
    let (found, expected) = (found.to_string(), expected.to_string());
    GgufError::Value { path: path.to_owned(), key: key.to_owned(), found, expected }
}
