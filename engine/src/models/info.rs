//! What there is to say about a model, for people.

use super::ModelFiles;
use super::tensors::tensors;
use crate::checkpoint::{FormatShare, OtherParts};
use crate::spec::ModelSpec;

/// A model in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Its name.
    pub name: String,
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
        let mut rows: Vec<TensorRow> = Vec::new();
        for tensor in tensors(&self.spec) {
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
        ModelInfo {
            name: self.name.clone(),
            spec: self.spec.clone(),
            parameters: rows.iter().map(|row| row.numbers).sum(),
            formats: self.checkpoint.formats(),
            weight_bytes: self.checkpoint.bytes(),
            other_parts: self.checkpoint.other_parts(),
            weight_files: self.checkpoint.files(),
            kv_bytes_per_token: self.spec.kv_layout(self.spec.dtype, None).token_bytes() as u64,
            tensors: rows,
        }
    }
}

/// Returns the name with its number replaced by `*`.
fn without_layer(name: &str) -> String {
    let starred = |part: &str| if part.parse::<usize>().is_ok() { "*".to_owned() } else { part.to_owned() };
    name.split('.').map(starred).collect::<Vec<_>>().join(".")
}
