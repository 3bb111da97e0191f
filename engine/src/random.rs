//! Random-weight checkpoints of named shapes, from a seed: the same bytes for the same seed on every machine. For tests
//! and measurements, where what a model says does not matter.
//!
//! What is deliberately absent: any meaning in the weights. They are only scaled so that activations stay in range,
//! attention depends on its context, and the most probable token has a lead.

mod numbers;
mod shapes;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use shapes::{SHAPES, Shape, ShapeScaling};

use crate::checkpoint::{CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE};
use crate::models::config::Config;
use crate::models::tensors::{TensorRole, TensorShape, tensors};
use crate::models::{FAMILIES, Family, read_spec};
use crate::spec::{ModelSpec, QkNorm};
use domain::Dtype;
use numbers::{Numbers, PIECE_NUMBERS, encode};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Weights files are cut before they grow beyond this, in bytes.
const SHARD_BYTES_MAX: u64 = 4 << 30;

/// Standard deviation of the weights' deviation from 1 in norms.
const NORM_NOISE: f32 = 0.1;
/// Standard deviation of biases.
const BIAS_NOISE: f32 = 0.1;
/// Standard deviation of queries and keys: attention scores deviate by its square, so that attention picks a few tokens
/// and a wrong one among them shows in the text.
const SCORE_GAIN: f32 = 1.5;
/// Makes up for what the average over several values loses.
const OUTPUT_GAIN: f32 = 2.0;
/// Standard deviation of the logits, about: a distribution that is neither flat nor certain.
const LOGIT_GAIN: f32 = 4.0;

/// Which checkpoint to write.
#[derive(Clone, Copy, Debug)]
pub struct RandomSpec {
    /// Form of the decoder.
    pub family: &'static Family,
    /// Its size.
    pub shape: &'static Shape,
    /// Where the weights come from.
    pub seed: u64,
    /// Number format of the weights.
    pub dtype: Dtype,
}

/// Why a checkpoint was not written.
#[derive(Debug, thiserror::Error)]
pub enum RandomError {
    /// No such family.
    #[error("there is no family {name:?}; families: {known}")]
    UnknownFamily {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// No such shape.
    #[error("there is no shape {name:?}; shapes: {known}")]
    UnknownShape {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The shape needs what the family has not.
    #[error("family {family:?} has no {feature}, which shape {shape:?} asks for")]
    Impossible {
        /// The family.
        family: &'static str,
        /// The shape.
        shape: &'static str,
        /// What the family lacks.
        feature: &'static str,
    },
    /// The directory holds a model already.
    #[error("{0} holds a model already: choose another directory, or remove it")]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl RandomSpec {
    /// Makes a checkpoint of the shape and family with these names. `dtype`: `None` for bf16.
    pub fn named(family: &str, shape: &str, seed: u64, dtype: Option<Dtype>) -> Result<Self, RandomError> {
        let found = Family::named(family).ok_or_else(|| RandomError::UnknownFamily {
            name: family.to_owned(),
            known: FAMILIES.map(|family| family.model_type).join(", "),
        })?;
        let shape = SHAPES.iter().find(|known| known.name == shape).ok_or_else(|| RandomError::UnknownShape {
            name: shape.to_owned(),
            known: SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", "),
        })?;
        if shape.window.is_some() && !found.has_window {
            let family = found.model_type;
            return Err(RandomError::Impossible { family, shape: shape.name, feature: "sliding window" });
        }
        if !found.has_rope_type(shape.rope_type()) {
            let kind = shape.rope_type();
            let feature = if kind == "default" { "unscaled rotary embedding" } else { kind };
            return Err(RandomError::Impossible { family: found.model_type, shape: shape.name, feature });
        }
        Ok(Self { family: found, shape, seed, dtype: dtype.unwrap_or(Dtype::Bf16) })
    }

    /// Returns what the model is.
    pub fn model(&self) -> ModelSpec {
        let config = Config::parse(self.config().to_string().as_bytes()).expect("a JSON object is written as one");
        read_spec(&config, None).expect("every shape is a valid config of every family that takes it; a test says so")
    }

    /// Writes the checkpoint into `dir`, which is made if missing and must not hold a model: weights, config.json,
    /// generation_config.json, and a byte-level tokenizer with a chat template. config.json comes last, so that a
    /// directory that was not finished is not taken for a model. Needs memory for one piece of a tensor, whatever the
    /// size of the model. `progress` gets written and total bytes of the weights.
    pub fn write(&self, dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<(), RandomError> {
        self.write_sharded(dir, SHARD_BYTES_MAX, progress)
    }

    fn write_sharded(
        &self,
        dir: &Path,
        shard_bytes: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), RandomError> {
        if dir.join(CONFIG_FILE).exists() {
            return Err(RandomError::Exists(dir.to_owned()));
        }
        std::fs::create_dir_all(dir).map_err(|source| RandomError::Write { path: dir.to_owned(), source })?;
        let model = self.model();
        let shards = shards(tensors(&model), self.dtype, shard_bytes);
        let bytes = |tensor: &TensorShape| tensor.numbers() * self.dtype.bytes() as u64;
        let total = shards.iter().flatten().map(bytes).sum();
        let mut done = 0;
        let mut weight_map = Map::new();
        for (index, shard) in shards.iter().enumerate() {
            let name = match shards.len() {
                1 => WEIGHTS_FILE.to_owned(),
                count => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
            };
            weight_map.extend(shard.iter().map(|tensor| (tensor.name.clone(), Value::from(name.as_str()))));
            let path = dir.join(&name);
            let mut count = |bytes: u64| {
                done += bytes;
                progress(done, total);
            };
            self.write_weights(&path, &model, shard, &mut count)
                .map_err(|source| RandomError::Write { path, source })?;
        }
        if shards.len() > 1 {
            write_json(dir, INDEX_FILE, json!({"metadata": {"total_size": total}, "weight_map": weight_map}))?;
        }
        for (name, value) in tokenizer::files(model.vocab, model.context) {
            write_json(dir, name, value)?;
        }
        write_json(dir, CONFIG_FILE, self.config())
    }

    /// Writes one safetensors file; `count` gets the bytes of each piece.
    fn write_weights(
        &self,
        path: &Path,
        model: &ModelSpec,
        shard: &[TensorShape],
        count: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let header = header(shard, self.dtype);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        let mut piece = Vec::new();
        for tensor in shard {
            let (mean, deviation) = distribution(model, tensor);
            let mut numbers = Numbers::new(self.seed, &tensor.name, mean, deviation);
            let mut left = tensor.numbers();
            while left > 0 {
                let now = left.min(PIECE_NUMBERS as u64);
                encode(&mut numbers, now as usize, self.dtype, &mut piece);
                file.write_all(&piece)?;
                count(piece.len() as u64);
                left -= now;
            }
        }
        file.flush()
    }

    /// config.json, in the spelling of transformers 4, which 5 reads too.
    fn config(&self) -> Value {
        let shape = self.shape;
        let mut config = json!({
            "architectures": [self.family.architecture],
            "model_type": self.family.model_type,
            "hidden_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "intermediate_size": shape.ffn,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": shape.context,
            "vocab_size": shape.vocab,
            "tie_word_embeddings": shape.tied,
            "rope_theta": shape.rope_theta,
            "rope_scaling": shape.rope_scaling(),
            "bos_token_id": tokenizer::BOS,
            "eos_token_id": tokenizer::EOS,
            "pad_token_id": tokenizer::PAD,
            "torch_dtype": match self.dtype {
                Dtype::F32 => "float32",
                Dtype::F16 => "float16",
                Dtype::Bf16 => "bfloat16",
            },
        });
        self.add_family_fields(&mut config);
        config
    }

    /// Adds the fields of config.json that only some families have.
    fn add_family_fields(&self, config: &mut Value) {
        let shape = self.shape;
        // A layer without a window where the family has them: one that no context outgrows.
        let window = json!(shape.window.unwrap_or(shape.context as u32));
        match self.family.model_type {
            "mistral" => config["sliding_window"] = json!(shape.window),
            "ministral3" => {
                config["sliding_window"] = json!(shape.window);
                config["rope_scaling"]["llama_4_scaling_beta"] = json!(0.5);
            }
            "phi3" => {
                config["sliding_window"] = json!(shape.window);
                if let ShapeScaling::Longrope(original) = shape.scaling {
                    config["original_max_position_embeddings"] = json!(original);
                    config["partial_rotary_factor"] = json!(0.75);
                }
            }
            // Low caps and odd scales: what they do is not to be lost in rounding.
            family @ ("gemma2" | "gemma3_text") => {
                config["sliding_window"] = window;
                config["attention_bias"] = json!(shape.biases);
                config["hidden_activation"] = json!("gelu_pytorch_tanh");
                config["query_pre_attn_scalar"] = json!(shape.head_dim + 8);
                if family == "gemma2" {
                    config["attn_logit_softcapping"] = json!(5.0);
                    config["final_logit_softcapping"] = json!(10.0);
                } else {
                    config["sliding_window_pattern"] = json!(2);
                    config["rope_theta"] = json!(100.0 * shape.rope_theta);
                    config["rope_local_base_freq"] = json!(shape.rope_theta);
                }
            }
            "granite" => {
                config["attention_bias"] = json!(shape.biases);
                config["mlp_bias"] = json!(shape.biases);
                config["embedding_multiplier"] = json!(3.0);
                config["residual_multiplier"] = json!(0.4);
                config["attention_multiplier"] = json!(0.6 / (shape.head_dim as f64).sqrt());
                config["logits_scaling"] = json!(1.5);
            }
            "olmo2" => config["attention_bias"] = json!(shape.biases),
            "qwen2" | "qwen3" => {
                config["use_sliding_window"] = json!(shape.window.is_some());
                config["sliding_window"] = json!(shape.window);
                // The lower half attends to everything, the upper half to a window: two KV groups.
                config["max_window_layers"] = json!(shape.layers / 2);
                config["attention_bias"] = json!(shape.biases);
            }
            _ => {
                config["attention_bias"] = json!(shape.biases);
                config["mlp_bias"] = json!(shape.biases);
            }
        }
    }
}

/// Mean and standard deviation of a tensor's numbers.
fn distribution(model: &ModelSpec, tensor: &TensorShape) -> (f32, f32) {
    let inputs = *tensor.shape.last().expect("a tensor has a dimension") as f32;
    let keep = 1.0 / inputs.sqrt();
    match tensor.role {
        // With `qk_norm` the norm after it decides, not the projection's scale.
        TensorRole::Query | TensorRole::Key | TensorRole::Qkv if model.qk_norm == QkNorm::None => {
            (0.0, SCORE_GAIN * keep)
        }
        TensorRole::Query | TensorRole::Key | TensorRole::Qkv | TensorRole::Value => (0.0, keep),
        TensorRole::Gate | TensorRole::Up | TensorRole::GateUp => (0.0, keep),
        TensorRole::Output | TensorRole::Down => (0.0, OUTPUT_GAIN * keep),
        TensorRole::Bias => (0.0, BIAS_NOISE),
        TensorRole::Norm => (1.0 - model.norm_offset, NORM_NOISE),
        TensorRole::HeadNorm => (SCORE_GAIN - model.norm_offset, NORM_NOISE),
        TensorRole::FinalNorm => (LOGIT_GAIN - model.norm_offset, NORM_NOISE),
        // Small beside what the layers add; else a tied model would only repeat its last token.
        TensorRole::Embedding | TensorRole::Head => (0.0, keep),
    }
}

/// Cuts the tensors, in order, into files of at most `shard_bytes` (or one tensor).
fn shards(tensors: Vec<TensorShape>, dtype: Dtype, shard_bytes: u64) -> Vec<Vec<TensorShape>> {
    let mut shards: Vec<Vec<TensorShape>> = vec![Vec::new()];
    let mut used = 0;
    for tensor in tensors {
        let bytes = tensor.numbers() * dtype.bytes() as u64;
        if used > 0 && used + bytes > shard_bytes {
            shards.push(Vec::new());
            used = 0;
        }
        used += bytes;
        shards.last_mut().expect("there is always one").push(tensor);
    }
    shards
}

/// Returns the value with its keys in alphabetical order. Their order otherwise depends on which other crates are in
/// the build.
fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

/// Header of a safetensors file that holds the tensors one after the other.
fn header(shard: &[TensorShape], dtype: Dtype) -> String {
    let name = match dtype {
        Dtype::F32 => "F32",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
    };
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut from = 0;
    for tensor in shard {
        let to = from + tensor.numbers() * dtype.bytes() as u64;
        let entry = json!({"dtype": name, "shape": tensor.shape, "data_offsets": [from, to]});
        entries.insert(tensor.name.clone(), entry);
        from = to;
    }
    let mut header = sorted(Value::Object(entries)).to_string();
    // The format asks that the data begin at a multiple of eight.
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    header
}

fn write_json(dir: &Path, name: &str, value: Value) -> Result<(), RandomError> {
    let path = dir.join(name);
    let text = format!("{:#}\n", sorted(value));
    std::fs::write(&path, text).map_err(|source| RandomError::Write { path, source })
}
