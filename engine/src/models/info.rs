//! What there is to say about a model, for people.

use super::config::Config;
use super::files::ModelFiles;
use super::tensors::tensors;
use crate::checkpoint::gguf::GgufFile;
use crate::checkpoint::{CONFIG_FILE, Checkpoint, FormatShare, OtherParts};
use crate::spec::ModelSpec;
use serde_json::Value;
use std::path::Path;

/// A model in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Shape and constants.
    pub spec: ModelSpec,
    /// Weights, in numbers.
    pub parameters: u64,
    /// Number formats of the weights, the one of most bytes first.
    pub formats: Vec<FormatShare>,
    /// Weights on disk, in bytes.
    pub weight_bytes: u64,
    /// Weights of other parts, such as one that reads images, which are not served.
    pub other_parts: OtherParts,
    /// Files that the weights are in.
    pub weight_files: usize,
    /// KV bytes of one token over all layers, with a pool in the weights' number format.
    pub kv_bytes_per_token: u64,
    /// The tensors, those of all layers in one row.
    pub tensors: Vec<TensorRow>,
}

/// Tensors of the same name in different layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRow {
    /// The name, with `*` for the layer.
    pub name: String,
    /// The shape of each.
    pub shape: Vec<usize>,
    /// How many there are.
    pub count: usize,
    /// Numbers in all of them.
    pub numbers: u64,
}

impl ModelFiles {
    /// Returns the model in figures. The tensors are those that the model must have, not those that its files have
    /// besides.
    pub fn describe(&self) -> ModelInfo {
        ModelInfo {
            formats: self.checkpoint.formats(),
            weight_bytes: self.checkpoint.bytes(),
            other_parts: self.checkpoint.other_parts(),
            weight_files: self.checkpoint.files(),
            ..ModelInfo::of(&self.spec)
        }
    }
}

impl ModelInfo {
    /// Returns a model in figures whose weights are not here.
    pub fn of(spec: &ModelSpec) -> Self {
        let mut rows: Vec<TensorRow> = Vec::new();
        for tensor in tensors(spec) {
            let numbers = tensor.numbers();
            let name = without_layer(&tensor.name);
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => {
                    row.count += 1;
                    row.numbers += numbers;
                }
                None => rows.push(TensorRow { name, shape: tensor.shape, count: 1, numbers }),
            }
        }
        Self {
            spec: spec.clone(),
            parameters: rows.iter().map(|row| row.numbers).sum(),
            formats: Vec::new(),
            weight_bytes: 0,
            other_parts: OtherParts::default(),
            weight_files: 0,
            kv_bytes_per_token: spec.kv_layout(spec.dtype, None).token_bytes() as u64,
            tensors: rows,
        }
    }
}

/// What the files of a model say of it that is not served: no more than that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// `model_type` of config.json, or the architecture of a GGUF file.
    pub family: Option<String>,
    /// Sizes that the file says, with their names for people.
    pub sizes: Vec<(&'static str, u64)>,
    /// Number formats of the weights, the one of most bytes first; none: the weights are not here or cannot be read.
    pub formats: Vec<FormatShare>,
}

/// Sizes: their names for people, in config.json and in GGUF files.
const SIZES: [(&str, &str, &str); 8] = [
    ("layers", "num_hidden_layers", "block_count"),
    ("hidden", "hidden_size", "embedding_length"),
    ("feed-forward", "intermediate_size", "feed_forward_length"),
    ("heads", "num_attention_heads", "attention.head_count"),
    ("heads for KV", "num_key_value_heads", "attention.head_count_kv"),
    ("experts", "num_local_experts", "expert_count"),
    ("vocabulary", "vocab_size", "vocab_size"),
    ("context", "max_position_embeddings", "context_length"),
];

impl Outline {
    /// Reads what a directory or a GGUF file says; what it does not say or says wrongly is left out. `gguf_bytes`: the
    /// length of a GGUF file of which only the first bytes have come.
    pub fn read(path: &Path, gguf_bytes: Option<u64>) -> Self {
        let gguf = match gguf_bytes {
            Some(length) => Some(GgufFile::open_head(path, length)),
            None => GgufFile::is_at(path).then(|| GgufFile::open(path)),
        };
        if let Some(file) = gguf {
            return file.map_or_else(|_| Self::default(), |file| Self::of_gguf(&file));
        }
        let config = std::fs::read(path.join(CONFIG_FILE)).ok().and_then(|json| Config::parse(&json).ok());
        let formats = Checkpoint::open(path).map_or_else(|_| Vec::new(), |checkpoint| checkpoint.formats());
        Self { formats, ..config.map_or_else(Self::default, |config| Self::of_config(&config)) }
    }

    /// Returns what an open GGUF file says.
    pub fn of_gguf(file: &GgufFile) -> Self {
        let size = |key: &str| file.hyperparameter(key).ok().flatten();
        Self {
            family: file.architecture().ok().map(str::to_owned),
            sizes: SIZES.iter().filter_map(|(name, _, key)| Some((*name, size(key)?))).collect(),
            formats: file.formats(),
        }
    }

    fn of_config(config: &Config) -> Self {
        let text = config.object("text_config").ok().flatten();
        let number = |key: &str| config.get(key).or_else(|| text.as_ref()?.get(key)).and_then(Value::as_u64);
        Self {
            family: config.text("model_type").ok().flatten().map(str::to_owned),
            sizes: SIZES.iter().filter_map(|(name, key, _)| Some((*name, number(key)?))).collect(),
            formats: Vec::new(),
        }
    }
}

/// Returns the name with its number replaced by `*`.
fn without_layer(name: &str) -> String {
    let starred = |part: &str| if part.parse::<usize>().is_ok() { "*".to_owned() } else { part.to_owned() };
    name.split('.').map(starred).collect::<Vec<_>>().join(".")
}
