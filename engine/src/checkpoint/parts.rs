//! Checkpoints of models with several parts, such as one that reads images: of them, the language model is kept, under
//! the names that a checkpoint of it alone has.

use super::{Checkpoint, Tensor};
use std::collections::BTreeMap;

/// What a checkpoint holds besides the language model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherParts {
    /// How many tensors.
    pub tensors: usize,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Checkpoint {
    /// Leaves the language model of a checkpoint with several parts, and counts the rest.
    pub(super) fn keep_language_model(mut self) -> Self {
        if !self.tensors.keys().any(|name| BEGINNINGS[..MARKS].iter().any(|(begin, _)| name.starts_with(begin))) {
            return self;
        }
        let mut kept: BTreeMap<String, Tensor> = BTreeMap::new();
        for (name, tensor) in std::mem::take(&mut self.tensors) {
            match language_model_name(&name) {
                Some(name) => _ = kept.insert(name, tensor),
                None => {
                    self.other_parts.tensors += 1;
                    self.other_parts.bytes += tensor.range.len() as u64;
                }
            }
        }
        self.tensors = kept;
        self
    }
}

/// How names of a language model's tensors begin in a checkpoint with several parts, and in one of it alone. The first
/// two spellings are transformers 4's, the others those of 5.
const BEGINNINGS: [(&str, &str); 4] = [
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
    ("lm_head.", "lm_head."),
];
/// How many of them show that there are several parts.
const MARKS: usize = 3;

/// Returns what the tensor `name` is called in a checkpoint of the language model alone; `None`: it belongs to another
/// part.
fn language_model_name(name: &str) -> Option<String> {
    BEGINNINGS.iter().find_map(|(begin, alone)| Some(format!("{alone}{}", name.strip_prefix(begin)?)))
}
