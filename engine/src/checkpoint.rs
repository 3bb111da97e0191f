//! Checkpoints on disk: Hugging Face directories with safetensors in one or many files, and GGUF files;
//! memory-mapped, and with a digest of what they hold. Tensors have the names that a Hugging Face checkpoint of a
//! language model alone has. A quantised matrix is one of them, whatever it is stored as.
//!
//! What is deliberately absent: what the tensors mean (`models` knows their names and shapes) and config.json, of which
//! only the bytes are read, for the digest.

mod digest;
mod error;
mod files;
pub mod gguf;
mod names;
mod parts;
mod quantised;
mod tensor;
#[cfg(test)]
mod tests;

pub use error::{CheckpointError, IndexError};
pub(crate) use names::{CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE};
pub use parts::OtherParts;
pub use quantised::{Quantisation, QuantisedError};
pub(crate) use tensor::LET_GO_BYTES;
pub use tensor::TensorView;

use crate::quant::WeightFormat;
use domain::Dtype;
use files::{WeightsFile, read};
use gguf::{GgufError, GgufFile};
use quantised::QuantisedTensor;
use safetensors::{SafeTensorError, SafeTensors};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensor::{RowOrder, Source};

/// An open checkpoint. Its files stay mapped as long as it lives; they must not be changed in place meanwhile (a new
/// version belongs in new files), since the maps would change with them.
#[derive(Debug)]
pub struct Checkpoint {
    /// The directory, or the GGUF file.
    path: PathBuf,
    /// Whether it is a directory with a config.json.
    has_config: bool,
    /// In order of their names.
    files: Vec<WeightsFile>,
    tensors: BTreeMap<String, Tensor>,
    other_parts: OtherParts,
    /// Matrices that several tensors make, which are not among `tensors` then.
    quantised: BTreeMap<String, QuantisedTensor>,
}

/// Where a tensor lies.
#[derive(Debug)]
struct Tensor {
    file: usize,
    format: StoredFormat,
    shape: Vec<usize>,
    /// Bytes of the file.
    range: Range<usize>,
    order: RowOrder,
}

/// The number format of a tensor in its file.
#[derive(Debug)]
enum StoredFormat {
    /// One that can be run.
    Supported(WeightFormat),
    /// Another one, as the file spells it.
    Unsupported(String),
}

impl fmt::Display for StoredFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supported(format) => format.fmt(f),
            Self::Unsupported(format) => f.write_str(format),
        }
    }
}

impl Tensor {
    /// Returns whether it is in this number format, as the file spells it.
    fn is(&self, format: &str) -> bool {
        self.format.to_string() == format
    }
}

/// The tensors of a checkpoint that are in one number format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatShare {
    /// The format's name, or its number where it has no name here.
    pub format: String,
    /// Whether it can be run.
    pub is_read: bool,
    /// What it is packed as when a model is loaded, where that is another format.
    pub packed: Option<WeightFormat>,
    /// How many tensors.
    pub tensors: usize,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Opens a GGUF file, or a Hugging Face directory: `model.safetensors`, or the files that
    /// `model.safetensors.index.json` names. Reads headers only; weights are read where they are used.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        if GgufFile::is_at(path) {
            return Ok(Self::from_gguf(GgufFile::open(path)?)?);
        }
        let dir = path;
        let index_path = dir.join(INDEX_FILE);
        if dir.join(WEIGHTS_FILE).is_file() {
            return Ok(Self::open_files(dir, vec![WEIGHTS_FILE.to_owned()])?.keep_language_model());
        }
        if !index_path.is_file() {
            return Err(CheckpointError::NoWeights { dir: dir.to_owned(), hint: no_weights_hint(dir) });
        }
        let bytes = read(&index_path)?;
        let bad = |reason| CheckpointError::BadIndex { path: index_path.clone(), reason };
        let index: Index = serde_json::from_slice(&bytes).map_err(|error| bad(error.into()))?;
        let mut shards: Vec<String> = index.weight_map.values().cloned().collect();
        shards.sort();
        shards.dedup();
        if shards.is_empty() {
            return Err(bad(IndexError::NoTensor));
        }
        if let Some(name) = shards.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
            return Err(bad(IndexError::Elsewhere { name: name.clone() }));
        }
        if let Some(shard) = shards.iter().find(|name| !dir.join(name).is_file()) {
            return Err(CheckpointError::MissingShard { dir: dir.to_owned(), shard: shard.clone() });
        }
        let checkpoint = Self::open_files(dir, shards)?;
        for (tensor, shard) in &index.weight_map {
            match checkpoint.tensors.get(tensor) {
                Some(found) if checkpoint.files[found.file].name == *shard => {}
                _ => return Err(bad(IndexError::Misplaced { tensor: tensor.clone(), shard: shard.clone() })),
            }
        }
        Ok(checkpoint.keep_language_model())
    }

    fn open_files(dir: &Path, names: Vec<String>) -> Result<Self, CheckpointError> {
        let mut files = Vec::with_capacity(names.len());
        let mut tensors = BTreeMap::new();
        for name in names {
            let file = WeightsFile::open(dir, name)?;
            for (tensor, place) in file.tensors(dir, files.len())? {
                tensors.insert(tensor, place);
            }
            files.push(file);
        }
        let other_parts = OtherParts::default();
        Ok(Self { path: dir.to_owned(), has_config: true, files, tensors, other_parts, quantised: BTreeMap::new() })
    }

    /// Returns the weights of an open GGUF file.
    pub(crate) fn from_gguf(file: GgufFile) -> Result<Self, GgufError> {
        let (architecture, head_dim) = (file.architecture()?.to_owned(), file.head_dim()?);
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &file.tensors {
            let Some(hf) = gguf::hf_tensor(&architecture, name, head_dim) else { continue };
            if let RowOrder::Interleaved { head_dim } = hf.order
                && (head_dim % 2 != 0 || !tensor.shape[0].is_multiple_of(head_dim))
            {
                return Err(file.value_error(name, tensor.shape[0], format!("rows of heads of {head_dim}")));
            }
            let format = match gguf::format(tensor.kind) {
                Some(format) => StoredFormat::Supported(format),
                None => StoredFormat::Unsupported(gguf::format_name(tensor.kind)),
            };
            let (shape, range) = (tensor.shape.clone(), tensor.range.clone());
            tensors.insert(hf.name, Tensor { file: tensor.file, format, shape, range, order: hf.order });
        }
        let (path, other_parts) = (file.path().to_owned(), OtherParts::default());
        Ok(Self { path, has_config: false, files: file.files, tensors, other_parts, quantised: BTreeMap::new() })
    }

    /// Returns the tensor `name`. Errors: it is missing, in a number format that is not read, or quantised and
    /// inconsistent.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, CheckpointError> {
        if let Some(tensor) = self.quantised.get(name) {
            let matrix = tensor.matrix(&self.files).map_err(|reason| {
                let path = self.file_path(tensor.file());
                CheckpointError::Quantised { path, tensor: name.to_owned(), reason }
            })?;
            let (format, shape) = (matrix.format(), vec![matrix.outputs, matrix.inputs]);
            let name = tensor.name(&matrix.name());
            let source = Source::Quantised { matrix: Arc::new(matrix), format: name };
            return Ok(TensorView { format, shape, source });
        }
        let tensor = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        let format = match &tensor.format {
            StoredFormat::Supported(format) => *format,
            StoredFormat::Unsupported(format) => {
                return Err(CheckpointError::UnsupportedFormat {
                    path: self.file_path(tensor.file),
                    tensor: name.to_owned(),
                    format: format.clone(),
                });
            }
        };
        let (shape, range, map) = (tensor.shape.clone(), tensor.range.clone(), &self.files[tensor.file].map);
        Ok(TensorView { format, shape, source: Source::Stored { map, range, order: tensor.order } })
    }

    /// Returns an error: there is no tensor `name`, or parts of it of which nothing says what they mean.
    fn missing(&self, name: &str) -> CheckpointError {
        let (path, tensor) = (self.path.clone(), name.to_owned());
        let part = |part: &&str| self.tensors.contains_key(&format!("{}{part}", name.trim_end_matches("weight")));
        match ["qweight", "weight_packed"].into_iter().find(|name| part(name)) {
            Some(part) => CheckpointError::Unexplained { path, tensor, part },
            None => CheckpointError::NoTensor { path, tensor },
        }
    }

    /// Returns the path of a weights file.
    fn file_path(&self, file: usize) -> PathBuf {
        let name = &self.files[file].name;
        if self.has_config { self.path.join(name) } else { self.path.with_file_name(name) }
    }

    /// Returns whether there is a tensor `name`, in whatever number format.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.quantised.contains_key(name)
    }

    /// Returns what is there besides the language model, and is not served. No other method counts it.
    pub fn other_parts(&self) -> OtherParts {
        self.other_parts
    }

    /// Names of all tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let all: BTreeSet<_> = self.tensors.keys().chain(self.quantised.keys()).collect();
        all.into_iter().map(String::as_str)
    }

    /// Returns the bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let quantised: u64 = self.quantised.values().map(QuantisedTensor::bytes).sum();
        quantised + self.tensors.values().map(|tensor| tensor.range.len() as u64).sum::<u64>()
    }

    /// Number of weights files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the number formats that the tensors are in, the one of most bytes first. A quantised matrix counts as
    /// one tensor; its zero points are looked at.
    pub fn formats(&self) -> Vec<FormatShare> {
        let stored = self.tensors.values().map(|tensor| {
            let known = match tensor.format {
                StoredFormat::Supported(format) => Some(format),
                StoredFormat::Unsupported(_) => None,
            };
            FormatShare::of(tensor.format.to_string(), known, tensor.range.len() as u64)
        });
        let quantised = self.quantised.values().map(|tensor| {
            let (format, packed) = tensor.formats(&self.files);
            FormatShare { format, is_read: packed.is_some(), packed, tensors: 1, bytes: tensor.bytes() }
        });
        FormatShare::sum(stored.chain(quantised))
    }

    /// Returns the number format that most bytes of the weights are in, of quantised matrices the one that they are
    /// packed as; `None` if no tensor is in a format that is read.
    pub fn format(&self) -> Option<WeightFormat> {
        let mut bytes: HashMap<WeightFormat, u64> = HashMap::new();
        for tensor in self.tensors.values() {
            if let StoredFormat::Supported(format) = tensor.format {
                *bytes.entry(format).or_default() += tensor.range.len() as u64;
            }
        }
        for tensor in self.quantised.values() {
            if let (_, Some(format)) = tensor.formats(&self.files) {
                *bytes.entry(format).or_default() += tensor.bytes();
            }
        }
        bytes.into_iter().max_by_key(|&(format, bytes)| (bytes, format.block_bytes())).map(|(format, _)| format)
    }

    /// Returns the directory, or the GGUF file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl FormatShare {
    /// Returns the share of one tensor that is in a file as it is, by its format's name. `known`: the format, if it is
    /// one that is read.
    fn of(format: String, known: Option<WeightFormat>, bytes: u64) -> Self {
        let packed = matches!(known, Some(WeightFormat::Repacked(_))).then_some(WeightFormat::Q8_0);
        Self { format, is_read: known.is_some(), packed, tensors: 1, bytes }
    }

    /// Adds up shares of the same format, that of most bytes first.
    fn sum(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut shares: Vec<Self> = Vec::new();
        for one in all {
            let same = |share: &&mut Self| share.format == one.format && share.packed == one.packed;
            match shares.iter_mut().find(same) {
                Some(share) => {
                    share.tensors += one.tensors;
                    share.bytes += one.bytes;
                }
                None => shares.push(one),
            }
        }
        shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        shares
    }
}

impl WeightsFile {
    fn open(dir: &Path, name: String) -> Result<Self, CheckpointError> {
        let path = dir.join(&name);
        let file = Self::open_at(&path).map_err(|source| CheckpointError::Read { path, source })?;
        Ok(Self { name, ..file })
    }

    /// Names and places of its tensors; `index` is this file's.
    fn tensors(&self, dir: &Path, index: usize) -> Result<Vec<(String, Tensor)>, CheckpointError> {
        let path = || dir.join(&self.name);
        let truncated =
            |described| CheckpointError::Truncated { path: path(), bytes: self.map.len() as u64, described };
        let (header, metadata) = SafeTensors::read_metadata(&self.map).map_err(|source| match source {
            SafeTensorError::HeaderTooSmall | SafeTensorError::InvalidHeaderLength => {
                truncated("more than that".to_owned())
            }
            SafeTensorError::MetadataIncompleteBuffer => truncated("another length".to_owned()),
            source => CheckpointError::BadFile { path: path(), source },
        })?;
        let data = size_of::<u64>() + header;
        let place = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
            let (from, to) = info.data_offsets;
            let range = data + from..data + to;
            let (format, shape) = (format(info.dtype), info.shape.clone());
            (name, Tensor { file: index, format, shape, range, order: RowOrder::AsStored })
        };
        Ok(metadata.tensors().into_iter().map(place).collect())
    }
}

/// Returns the number format of a tensor in a safetensors file.
fn format(dtype: safetensors::Dtype) -> StoredFormat {
    let plain = |dtype| StoredFormat::Supported(WeightFormat::Plain(dtype));
    match dtype {
        safetensors::Dtype::F32 => plain(Dtype::F32),
        safetensors::Dtype::F16 => plain(Dtype::F16),
        safetensors::Dtype::BF16 => plain(Dtype::Bf16),
        other => StoredFormat::Unsupported(format!("{other:?}")),
    }
}

/// Returns what a directory without weights that are read holds instead.
fn no_weights_hint(dir: &Path) -> String {
    let Ok(entries) = dir.read_dir() else {
        return "; it is not a directory that can be read".to_owned();
    };
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let ends = |end: &str| names.iter().find(|name| name.ends_with(end));
    if let Some(name) = ends(".safetensors") {
        format!("; {name} is there: name it {WEIGHTS_FILE}, or fetch the index too if the weights are in several files")
    } else if let Some(name) = ends(".bin").or_else(|| ends(".pth")) {
        format!(
            "; {name} is there, but pickled weights are not read: convert them to safetensors (`save_pretrained` of \
             transformers writes them), or fetch a GGUF of the model"
        )
    } else {
        "; fetch the weights".to_owned()
    }
}
