//! Hugging Face checkpoints on disk: safetensors in one or many files, memory-mapped, and a digest of what they hold.
//!
//! What is deliberately absent: what the tensors mean (`models` knows their names and shapes) and config.json, of which
//! only the bytes are read, for the digest.

mod digest;
#[cfg(test)]
mod tests;

use crate::quant::WeightFormat;
use digest::FileIdentity;
use domain::Dtype;
use memmap2::Mmap;
use safetensors::{SafeTensorError, SafeTensors};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Name of the weights where they are one file.
pub(crate) const WEIGHTS_FILE: &str = "model.safetensors";
/// Name of the table that says which file holds which tensor, where they are many.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";
/// Name of the model's description.
pub(crate) const CONFIG_FILE: &str = "config.json";

/// A tensor of a checkpoint, in place.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Number format.
    pub format: WeightFormat,
    /// Slowest dimension first, as in the file: a linear layer's weight is `[outputs, inputs]`. Rows are whole blocks of the
    /// number format.
    pub shape: Vec<usize>,
    /// Little endian, row-major, without gaps. Not necessarily aligned to the number format.
    pub data: &'a [u8],
}

/// An open checkpoint. Its files stay mapped as long as it lives; they must not be changed in place meanwhile (a new
/// version belongs in new files), since the maps would change with them.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    /// In order of their names.
    files: Vec<WeightsFile>,
    tensors: BTreeMap<String, Tensor>,
}

/// One mapped safetensors file.
#[derive(Debug)]
struct WeightsFile {
    /// Name inside the directory.
    name: String,
    map: Mmap,
    identity: FileIdentity,
}

/// Where a tensor lies.
#[derive(Debug)]
struct Tensor {
    file: usize,
    dtype: safetensors::Dtype,
    shape: Vec<usize>,
    /// Bytes of the file.
    range: Range<usize>,
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directory holds no weights in a form that is read.
    #[error("{dir} has neither {WEIGHTS_FILE} nor {INDEX_FILE}{hint}")]
    NoWeights {
        /// The directory.
        dir: PathBuf,
        /// What is there instead and what to do about it; begins with punctuation, or empty.
        hint: String,
    },
    /// The index names a file that is not there.
    #[error("{dir}/{INDEX_FILE} names {shard:?}, which is missing: the download is incomplete, fetch that file again")]
    MissingShard {
        /// The directory.
        dir: PathBuf,
        /// The file.
        shard: String,
    },
    /// The index cannot be understood.
    #[error("{path} is not a valid index: {reason}")]
    BadIndex {
        /// The index.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file is shorter or longer than its header says.
    #[error("{path} has {bytes} bytes and its header describes {described}: it was cut off or changed, fetch it again")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// What its header describes.
        described: String,
    },
    /// A file is no safetensors file.
    #[error("{path} is not a valid safetensors file")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: SafeTensorError,
    },
    /// No file holds the tensor.
    #[error("the checkpoint {dir} has no tensor {tensor:?}")]
    NoTensor {
        /// The directory.
        dir: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// The tensor is in a number format that is not read.
    #[error(
        "tensor {tensor:?} in {path} is stored as {dtype}; supported are F32, F16 and BF16: use a checkpoint that is \
         not quantised"
    )]
    UnsupportedDtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its number format, as safetensors spells it.
        dtype: String,
    },
}

impl Checkpoint {
    /// Opens the Hugging Face directory `dir`: `model.safetensors`, or the files that `model.safetensors.index.json`
    /// names. Reads headers only; weights are read where they are used.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let index_path = dir.join(INDEX_FILE);
        if dir.join(WEIGHTS_FILE).is_file() {
            return Self::open_files(dir, vec![WEIGHTS_FILE.to_owned()]);
        }
        if !index_path.is_file() {
            return Err(CheckpointError::NoWeights { dir: dir.to_owned(), hint: no_weights_hint(dir) });
        }
        let bytes = read(&index_path)?;
        let bad = |reason: String| CheckpointError::BadIndex { path: index_path.clone(), reason };
        let index: Index = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        let mut shards: Vec<String> = index.weight_map.values().cloned().collect();
        shards.sort();
        shards.dedup();
        if shards.is_empty() {
            return Err(bad("it names no tensor".to_owned()));
        }
        // A name with a path in it could reach any file of the host.
        if let Some(name) = shards.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
            return Err(bad(format!("{name:?} is not the name of a file beside it")));
        }
        if let Some(shard) = shards.iter().find(|name| !dir.join(name).is_file()) {
            return Err(CheckpointError::MissingShard { dir: dir.to_owned(), shard: shard.clone() });
        }
        let checkpoint = Self::open_files(dir, shards)?;
        for (tensor, shard) in &index.weight_map {
            match checkpoint.tensors.get(tensor) {
                Some(found) if checkpoint.files[found.file].name == *shard => {}
                _ => return Err(bad(format!("tensor {tensor:?} is not in {shard:?}, where it says it is"))),
            }
        }
        Ok(checkpoint)
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
        Ok(Self { dir: dir.to_owned(), files, tensors })
    }

    /// The tensor `name`. Errors: it is missing, or in a number format that is not read.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, CheckpointError> {
        let tensor = self
            .tensors
            .get(name)
            .ok_or_else(|| CheckpointError::NoTensor { dir: self.dir.clone(), tensor: name.to_owned() })?;
        let file = &self.files[tensor.file];
        let dtype = dtype(tensor.dtype).ok_or_else(|| CheckpointError::UnsupportedDtype {
            path: self.dir.join(&file.name),
            tensor: name.to_owned(),
            dtype: format!("{:?}", tensor.dtype),
        })?;
        Ok(TensorView { format: dtype.into(), shape: tensor.shape.clone(), data: &file.map[tensor.range.clone()] })
    }

    /// Whether there is a tensor `name`, in whatever number format.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Names of all tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.range.len() as u64).sum()
    }

    /// Number of weights files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The number format that most bytes of the weights are in; `None` if no tensor is in a format that is read.
    pub fn dtype(&self) -> Option<Dtype> {
        let mut bytes: HashMap<Dtype, usize> = HashMap::new();
        for tensor in self.tensors.values() {
            if let Some(dtype) = dtype(tensor.dtype) {
                *bytes.entry(dtype).or_default() += tensor.range.len();
            }
        }
        bytes.into_iter().max_by_key(|&(dtype, bytes)| (bytes, dtype.bytes())).map(|(dtype, _)| dtype)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl WeightsFile {
    fn open(dir: &Path, name: String) -> Result<Self, CheckpointError> {
        let path = dir.join(&name);
        let at = |source| CheckpointError::Read { path: path.clone(), source };
        let file = File::open(&path).map_err(at)?;
        let identity = FileIdentity::of(&file.metadata().map_err(at)?);
        // SAFETY: the map is read-only and private to this struct. Rust asks that the bytes under it do not change;
        // `Checkpoint` documents that files must not be written in place while it lives, which no part of this
        // program does, and a file that is replaced (the usual way to update one) leaves the mapped one as it is.
        let map = unsafe { Mmap::map(&file) }.map_err(at)?;
        Ok(Self { name, map, identity })
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
            (name, Tensor { file: index, dtype: info.dtype, shape: info.shape.clone(), range })
        };
        Ok(metadata.tensors().into_iter().map(place).collect())
    }
}

/// The number format in our words, if it is one that is read.
fn dtype(dtype: safetensors::Dtype) -> Option<Dtype> {
    match dtype {
        safetensors::Dtype::F32 => Some(Dtype::F32),
        safetensors::Dtype::F16 => Some(Dtype::F16),
        safetensors::Dtype::BF16 => Some(Dtype::Bf16),
        _ => None,
    }
}

/// What a directory without weights that are read holds instead.
fn no_weights_hint(dir: &Path) -> String {
    let Ok(entries) = dir.read_dir() else {
        return "; it is not a directory that can be read".to_owned();
    };
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let ends = |end: &str| names.iter().find(|name| name.ends_with(end));
    if let Some(name) = ends(".safetensors") {
        format!("; {name} is there: name it {WEIGHTS_FILE}, or fetch the index too if the weights are in several files")
    } else if let Some(name) = ends(".bin").or_else(|| ends(".pth")) {
        format!("; {name} is there, but pickled weights are not read: convert them to safetensors")
    } else {
        "; fetch the weights".to_owned()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    std::fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })
}
