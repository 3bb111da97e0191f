//! Why a checkpoint cannot be read.

use super::gguf::GgufError;
use super::names::{INDEX_FILE, WEIGHTS_FILE};
use super::quantised::QuantisedError;
use safetensors::SafeTensorError;
use std::io;
use std::path::PathBuf;

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
    /// The tensor is quantised, and config.json says nothing of it.
    #[error(
        "the checkpoint {path} has {part} in place of the tensor {tensor:?}, and its config.json no quantization_config: \
         fetch config.json again, or another copy of the model"
    )]
    Unexplained {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor, as a plain one would be called.
        tensor: String,
        /// The end of the name of what is there.
        part: &'static str,
    },
    /// The tensor is in a number format that is not read.
    #[error(
        "tensor {tensor:?} in {path} is stored as {format}; supported are F32, F16, BF16 and, in GGUF files, Q4_0, Q4_1, \
         Q5_0, Q5_1, Q8_0 and Q2_K to Q6_K: fetch the model as Q4_K_M or Q8_0, say. Quantised safetensors are read if \
         config.json has their quantization_config"
    )]
    UnsupportedFormat {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its number format, as the file spells it.
        format: String,
    },
    /// The tensor is quantised, and what it is made of does not fit together.
    #[error("tensor {tensor:?} in {path} is quantised and cannot be read: {reason}")]
    Quantised {
        /// The file.
        path: PathBuf,
        /// The tensor, as a plain one would be called.
        tensor: String,
        /// What is wrong.
        #[source]
        reason: QuantisedError,
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
