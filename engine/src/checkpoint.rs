//! Checkpoints on disk: Hugging Face directories with safetensors in one or many files, and GGUF files;
//! memory-mapped, and with a digest of what they hold. Tensors have their Hugging Face names in both.
//!
//! What is deliberately absent: what the tensors mean (`models` knows their names and shapes) and config.json, of which
//! only the bytes are read, for the digest.

mod digest;
pub mod gguf;
#[cfg(test)]
mod tests;

use crate::quant::WeightFormat;
use digest::FileIdentity;
use domain::Dtype;
use gguf::{GgufError, GgufFile};
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

/// Bytes of a tensor that are read before they are let go: much more than what a system maps around a page (64 KiB).
pub(crate) const LET_GO_BYTES: usize = 1 << 20;

/// A tensor of a checkpoint, in place.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Number format.
    pub format: WeightFormat,
    /// Slowest dimension first: a linear layer's weight is `[outputs, inputs]`. Rows are whole blocks of the
    /// number format.
    pub shape: Vec<usize>,
    /// The file, and which bytes of it: row-major, without gaps.
    map: &'a Mmap,
    range: Range<usize>,
    order: RowOrder,
}

impl<'a> TensorView<'a> {
    /// The rows, in order: the numbers of the last dimension, or single ones where there is no other; the one
    /// number of a tensor without dimensions. Little endian, not necessarily aligned to the number format.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let (map, order) = (self.map, self.order);
        let (rows, bytes) = self.rows_of_bytes();
        let data = &map[self.range.clone()];
        (0..rows).map(move |row| {
            let stored = order.stored(row);
            &data[stored * bytes..(stored + 1) * bytes]
        })
    }

    /// Says that rows have been read: their part of the map takes no memory of this process any more. Who reads
    /// them again gets them from the file. Systems map what lies around a page that is read, so pieces of
    /// [`LET_GO_BYTES`] leave less behind than small ones, and all rows at once leave nothing.
    pub fn let_go(&self, rows: Range<usize>) {
        // Rows of another order stay within their head: what is let go here is about what was read.
        let (_, bytes) = self.rows_of_bytes();
        let_go(self.map, self.range.start + rows.start * bytes..self.range.start + rows.end * bytes);
    }

    /// Numbers of a row.
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// How many rows, and the bytes of each.
    fn rows_of_bytes(&self) -> (usize, usize) {
        let rows = self.shape.first().copied().unwrap_or(1);
        (rows, self.range.len().checked_div(rows).unwrap_or(0))
    }
}

/// In which order a file has the rows of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// In order.
    AsStored,
    /// In each head, row `i` of the second half follows row `i` of the first half.
    Interleaved {
        /// Rows of a head, even.
        head_dim: usize,
    },
}

impl RowOrder {
    /// Where row `row` is.
    fn stored(self, row: usize) -> usize {
        match self {
            Self::AsStored => row,
            Self::Interleaved { head_dim } => {
                let (head, half) = (row / head_dim * head_dim, head_dim / 2);
                head + row % head_dim % half * 2 + row % head_dim / half
            }
        }
    }
}

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
}

/// One mapped file.
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

/// The tensors of a checkpoint that are in one number format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatShare {
    /// The format's name, or its number where it has no name here.
    pub format: String,
    /// Whether it can be run.
    pub is_read: bool,
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

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
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
        /// What is wrong with it.
        #[source]
        reason: IndexError,
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
    /// A GGUF file cannot be used.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// No file holds the tensor.
    #[error("the checkpoint {path} has no tensor {tensor:?}")]
    NoTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// The tensor is in a number format that is not read.
    #[error(
        "tensor {tensor:?} in {path} is stored as {format}; supported are F32, F16, BF16 and, in GGUF files, Q4_0, Q4_1, \
         Q5_0, Q5_1, Q8_0 and Q2_K to Q6_K: fetch the model as Q4_K_M or Q8_0, say"
    )]
    UnsupportedFormat {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its number format, as the file spells it.
        format: String,
    },
}

/// What is wrong with the table that says which file holds which tensor.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// It is not JSON with a `weight_map`.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It has no tensors.
    #[error("it names no tensor")]
    NoTensor,
    /// A name with a path in it, which could reach any file of the host.
    #[error("{name:?} is not the name of a file beside it")]
    Elsewhere {
        /// The name.
        name: String,
    },
    /// A file does not hold a tensor that the index says it holds.
    #[error("tensor {tensor:?} is not in {shard:?}, where it says it is")]
    Misplaced {
        /// The tensor.
        tensor: String,
        /// The file that the index names.
        shard: String,
    },
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
            return Self::open_files(dir, vec![WEIGHTS_FILE.to_owned()]);
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
        Ok(Self { path: dir.to_owned(), has_config: true, files, tensors })
    }

    /// The weights of an open GGUF file.
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
        Ok(Self { path: file.path().to_owned(), has_config: false, files: file.files, tensors })
    }

    /// The tensor `name`. Errors: it is missing, or in a number format that is not read.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, CheckpointError> {
        let tensor = self
            .tensors
            .get(name)
            .ok_or_else(|| CheckpointError::NoTensor { path: self.path.clone(), tensor: name.to_owned() })?;
        let file = &self.files[tensor.file];
        let format = match &tensor.format {
            StoredFormat::Supported(format) => *format,
            StoredFormat::Unsupported(format) => {
                return Err(CheckpointError::UnsupportedFormat {
                    path: if self.has_config {
                        self.path.join(&file.name)
                    } else {
                        self.path.with_file_name(&file.name)
                    },
                    tensor: name.to_owned(),
                    format: format.clone(),
                });
            }
        };
        let (shape, range) = (tensor.shape.clone(), tensor.range.clone());
        Ok(TensorView { format, shape, map: &file.map, range, order: tensor.order })
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

    /// The number formats that the tensors are in, the one of most bytes first.
    pub fn formats(&self) -> Vec<FormatShare> {
        let mut shares: BTreeMap<(String, bool), (usize, u64)> = BTreeMap::new();
        for tensor in self.tensors.values() {
            let format = match &tensor.format {
                StoredFormat::Supported(format) => (format.to_string(), true),
                StoredFormat::Unsupported(format) => (format.clone(), false),
            };
            let (tensors, bytes) = shares.entry(format).or_default();
            *tensors += 1;
            *bytes += tensor.range.len() as u64;
        }
        let share = |((format, is_read), (tensors, bytes))| FormatShare { format, is_read, tensors, bytes };
        let mut shares: Vec<FormatShare> = shares.into_iter().map(share).collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        shares
    }

    /// The number format that most bytes of the weights are in; `None` if no tensor is in a format that is read.
    pub fn format(&self) -> Option<WeightFormat> {
        let mut bytes: HashMap<WeightFormat, usize> = HashMap::new();
        for tensor in self.tensors.values() {
            if let StoredFormat::Supported(format) = tensor.format {
                *bytes.entry(format).or_default() += tensor.range.len();
            }
        }
        bytes.into_iter().max_by_key(|&(format, bytes)| (bytes, format.block_bytes())).map(|(format, _)| format)
    }

    /// The directory, or the GGUF file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl WeightsFile {
    fn open(dir: &Path, name: String) -> Result<Self, CheckpointError> {
        let path = dir.join(&name);
        let file = Self::open_at(&path).map_err(|source| CheckpointError::Read { path, source })?;
        Ok(Self { name, ..file })
    }

    fn open_at(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (map, identity) = map(path)?;
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
            let (format, shape) = (format(info.dtype), info.shape.clone());
            (name, Tensor { file: index, format, shape, range, order: RowOrder::AsStored })
        };
        Ok(metadata.tensors().into_iter().map(place).collect())
    }
}

/// Maps the file at `path`.
fn map(path: &Path) -> io::Result<(Mmap, FileIdentity)> {
    let file = File::open(path)?;
    let identity = FileIdentity::of(&file.metadata()?);
    // SAFETY: the map is read-only and private to its holder. Rust asks that the bytes under it do not change;
    // `Checkpoint` documents that files must not be written in place while it lives, which no part of this
    // program does, and a file that is replaced (the usual way to update one) leaves the mapped one as it is.
    let map = unsafe { Mmap::map(&file) }?;
    Ok((map, identity))
}

/// Has the pages of these bytes leave the process's memory; the file and the system's cache of it keep them.
fn let_go(map: &Mmap, bytes: Range<usize>) {
    #[cfg(target_os = "linux")]
    // SAFETY: the map is private and nobody wrote to it, so what is read there again is the file's, as before. A
    // hint that is refused costs memory, nothing else.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
    #[cfg(not(target_os = "linux"))]
    let _ = (map, bytes);
}

/// The number format of a tensor in a safetensors file.
fn format(dtype: safetensors::Dtype) -> StoredFormat {
    let plain = |dtype| StoredFormat::Supported(WeightFormat::Plain(dtype));
    match dtype {
        safetensors::Dtype::F32 => plain(Dtype::F32),
        safetensors::Dtype::F16 => plain(Dtype::F16),
        safetensors::Dtype::BF16 => plain(Dtype::Bf16),
        other => StoredFormat::Unsupported(format!("{other:?}")),
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
