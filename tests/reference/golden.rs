//! What transformers computed.

use domain::Token;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A golden, as `make.py` wrote it.
#[derive(Debug, Deserialize)]
pub(crate) struct Golden {
    /// The prompt.
    pub(crate) prompt: Vec<Token>,
    /// What greedy decoding adds.
    pub(crate) generated: Vec<Token>,
    /// Positions (of the prompt and what was decoded) whose logits were kept.
    pub(crate) positions: Vec<u32>,
    /// config.json as transformers 5 writes it.
    pub(crate) config: Value,
    /// Largest absolute error of transformers' own logits; absent where the golden is its f32 run.
    pub(crate) transformers_error: Option<f32>,
    /// The logits at `positions`.
    #[serde(skip)]
    pub(crate) logits: Vec<Vec<f32>>,
}

impl Golden {
    /// The golden `name`.
    pub(crate) fn read(name: &str) -> Golden {
        let read = |end: &str| {
            let path = folder().join("goldens").join(format!("{name}.{end}"));
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let mut golden: Golden = serde_json::from_slice(&read("json")).expect("make.py wrote it");
        let bytes = read("safetensors");
        let file = SafeTensors::deserialize(&bytes).expect("make.py wrote it");
        let logits = file.tensor("logits").expect("make.py wrote it");
        assert_eq!((logits.dtype(), logits.shape()[0]), (Dtype::F32, golden.positions.len()));
        let numbers = logits.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let numbers: Vec<f32> = numbers.collect();
        golden.logits = numbers.chunks(logits.shape()[1]).map(<[f32]>::to_vec).collect();
        golden
    }

    /// The largest absolute logit.
    pub(crate) fn largest(&self) -> f32 {
        self.logits.iter().flatten().fold(0.0, |largest, logit| logit.abs().max(largest))
    }
}

/// The folder of this file.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("reference")
}
