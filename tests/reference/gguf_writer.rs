//! Writes a model as a GGUF file, in the manner of llama.cpp's converters. What tensors are called there stands in
//! `gguf/names.json`, which llama.cpp's own package made.

use domain::Dtype;
use engine::checkpoint::TensorView;
use engine::models::ModelFiles;
use engine::spec::{Rope, RopeScaling};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// What tensors are called, by architecture.
const NAMES: &str = include_str!("gguf/names.json");

/// Where data begins: at multiples of this.
const ALIGNMENT: usize = 32;

/// A file that is being made.
#[derive(Default)]
pub(crate) struct Writer {
    values: Vec<u8>,
    value_count: u64,
    pub(crate) tensors: Vec<Tensor>,
}

/// A tensor of it.
pub(crate) struct Tensor {
    /// Name, shape and kind, as the file has them.
    info: Vec<u8>,
    data: Vec<u8>,
}

impl Writer {
    /// Adds a metadata value: its type and its bytes.
    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.values.extend(text(key));
        self.values.extend(kind.to_le_bytes());
        self.values.extend(bytes);
        self.value_count += 1;
    }

    pub(crate) fn count(&mut self, key: &str, count: usize) {
        self.value(key, 4, &(count as u32).to_le_bytes());
    }

    pub(crate) fn number(&mut self, key: &str, number: f64) {
        self.value(key, 6, &(number as f32).to_le_bytes());
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.value(key, 8, &text(value));
    }

    pub(crate) fn texts<'a>(&mut self, key: &str, texts: impl ExactSizeIterator<Item = &'a str>) {
        let mut list = [8u32.to_le_bytes().to_vec(), (texts.len() as u64).to_le_bytes().to_vec()].concat();
        texts.for_each(|value| list.extend(text(value)));
        self.value(key, 9, &list);
    }

    pub(crate) fn integers(&mut self, key: &str, integers: &[i32]) {
        let mut list = [5u32.to_le_bytes().to_vec(), (integers.len() as u64).to_le_bytes().to_vec()].concat();
        integers.iter().for_each(|integer| list.extend(integer.to_le_bytes()));
        self.value(key, 9, &list);
    }

    /// Adds a tensor.
    fn tensor(&mut self, name: &str, shape: &[usize], kind: u32, rows: &[Vec<u8>]) {
        let mut info = text(name);
        info.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&size| info.extend((size as u64).to_le_bytes()));
        info.extend(kind.to_le_bytes());
        self.tensors.push(Tensor { info, data: rows.concat() });
    }

    /// Adds the vocabulary of `tokenizer`, a byte-level tokenizer.json whose texts are cut as `pre` says.
    pub(crate) fn byte_level(&mut self, tokenizer: &Value, pre: &str) {
        let vocab = tokenizer["model"]["vocab"].as_object().expect("it has one");
        let mut tokens = vec![""; vocab.len()];
        vocab.iter().for_each(|(text, id)| tokens[id.as_u64().expect("a token") as usize] = text);
        let mut kinds = vec![1; tokens.len()];
        for added in tokenizer["added_tokens"].as_array().expect("it has some") {
            kinds[added["id"].as_u64().expect("a token") as usize] = 3;
        }
        let merges = tokenizer["model"]["merges"].as_array().expect("it has some");
        let merges: Vec<String> = merges
            .iter()
            .map(|pair| format!("{} {}", pair[0].as_str().expect("a text"), pair[1].as_str().expect("a text")))
            .collect();
        self.text("tokenizer.ggml.model", "gpt2");
        self.text("tokenizer.ggml.pre", pre);
        self.texts("tokenizer.ggml.tokens", tokens.into_iter());
        self.texts("tokenizer.ggml.merges", merges.iter().map(String::as_str));
        self.integers("tokenizer.ggml.token_type", &kinds);
    }

    /// Writes the file.
    pub(crate) fn write(self, path: &Path) {
        let mut infos = Vec::new();
        let mut data: Vec<u8> = Vec::new();
        for tensor in &self.tensors {
            infos.extend(&tensor.info);
            infos.extend((data.len() as u64).to_le_bytes());
            data.extend(&tensor.data);
            data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
        }
        let counts = [(self.tensors.len() as u64).to_le_bytes(), self.value_count.to_le_bytes()].concat();
        let mut file = [b"GGUF", &3u32.to_le_bytes()[..], &counts, &self.values, &infos].concat();
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file.extend(data);
        std::fs::write(path, file).expect("the file is written");
    }
}

/// A text as the file has it.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// The number of a plain format.
pub(crate) fn kind(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 0,
        Dtype::F16 => 1,
        Dtype::Bf16 => 30,
    }
}

/// What a matrix of this name becomes, which has these rows: its kind, and its rows in it.
pub(crate) type Format<'a> = &'a dyn Fn(&str, &TensorView<'_>) -> (u32, Vec<Vec<u8>>);

/// The model in `files` as a file of this architecture, without a tokenizer.
pub(crate) fn model(files: &ModelFiles, architecture: &str) -> Writer {
    let plain = |_: &str, matrix: &TensorView<'_>| {
        (kind(files.spec.dtype), matrix.rows(0..matrix.height()).into_iter().map(Cow::into_owned).collect())
    };
    model_in(files, architecture, &plain)
}

/// As [`model`], with matrices in formats of the caller's choice.
pub(crate) fn model_in(files: &ModelFiles, architecture: &str, format: Format<'_>) -> Writer {
    let mut writer = Writer::default();
    write_hyperparameters(&mut writer, files, architecture);
    let spec = &files.spec;
    let names: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(NAMES).expect("make_gguf.py made it");
    for name in files.checkpoint.names() {
        let tensor = files.checkpoint.tensor(name).expect("it is there");
        let (stem, end) = name.rsplit_once('.').expect("a name ends with weight or bias");
        let layer = stem.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
        let first = layer.map_or(stem.to_owned(), |layer| stem.replacen(&format!(".{layer}."), ".0.", 1));
        let stored = names[architecture].get(&first).unwrap_or_else(|| panic!("{architecture} has no {name}"));
        let stored = layer.map_or(stored.clone(), |layer| stored.replacen(".0.", &format!(".{layer}."), 1));
        let vector = tensor.shape.len() == 1;
        let (kind, mut rows) = if vector {
            // Norms and biases are f32 there, and Gemma's norms are not distances from 1.
            let offset = if stem.ends_with("norm") { spec.norm_offset } else { 0.0 };
            let numbers = tensor.widened(0..tensor.height()).into_iter();
            (kind(Dtype::F32), numbers.map(|number| (number + offset).to_le_bytes().to_vec()).collect())
        } else {
            format(name, &tensor)
        };
        if ["llama", "mistral3", "granite"].contains(&architecture)
            && (stem.ends_with("q_proj") || stem.ends_with("k_proj"))
        {
            rows = interleaved(&rows, spec.head_dim);
        }
        writer.tensor(&format!("{stored}.{end}"), &tensor.shape, kind, &rows);
    }
    writer
}

/// The rows of a head's halves in turns.
fn interleaved(rows: &[Vec<u8>], head_dim: usize) -> Vec<Vec<u8>> {
    let half = head_dim / 2;
    let of_head =
        |head: &[Vec<u8>]| (0..half).flat_map(|i| [head[i].clone(), head[half + i].clone()]).collect::<Vec<_>>();
    rows.chunks(head_dim).flat_map(of_head).collect()
}

fn write_hyperparameters(writer: &mut Writer, files: &ModelFiles, architecture: &str) {
    let spec = &files.spec;
    let key = |key: &str| format!("{architecture}.{key}");
    writer.text("general.architecture", architecture);
    let counts = [
        ("context_length", spec.context),
        ("embedding_length", spec.hidden),
        ("block_count", spec.layers),
        ("feed_forward_length", spec.feed_forward_width_max()),
        ("attention.head_count", spec.heads),
        ("attention.head_count_kv", spec.kv_heads),
        ("attention.key_length", spec.head_dim),
        ("attention.value_length", spec.head_dim),
        ("rope.dimension_count", spec.ropes[0].dims),
    ];
    counts.iter().for_each(|(name, count)| writer.count(&key(name), *count));
    writer.number(&key("attention.layer_norm_rms_epsilon"), spec.norm_eps.into());
    let rope = spec.ropes.last().expect("a model has layers");
    writer.number(&key("rope.freq_base"), rope.theta);
    writer.count("tokenizer.ggml.bos_token_id", spec.bos.expect("it has one") as usize);
    writer.count("tokenizer.ggml.eos_token_id", spec.eos[0] as usize);
    if let Some(window) = spec.windows().into_iter().flatten().next() {
        writer.count(&key("attention.sliding_window"), window as usize);
    }
    match architecture {
        "gemma2" => {
            writer.number(&key("attn_logit_softcapping"), spec.attention_cap.expect("it has one").into());
            writer.number(&key("final_logit_softcapping"), spec.logits_cap.expect("it has one").into());
        }
        "gemma3" => {
            writer.count(&key("attention.sliding_window_pattern"), 2);
            writer.number(&key("rope.freq_base_swa"), spec.ropes[0].theta);
        }
        "mistral3" => {
            if let Some(growth) = spec.query_growth {
                writer.number(&key("attention.temperature_scale"), growth.beta.into());
            }
        }
        "granite" => {
            writer.number(&key("embedding_scale"), spec.embedding_scale.into());
            writer.number(&key("residual_scale"), spec.residual_scale.into());
            writer.number(&key("attention.scale"), spec.attention_scale.into());
            writer.number(&key("logit_scale"), (1.0 / spec.logits_scale).into());
        }
        _ => {}
    }
    write_rope_scaling(writer, rope, architecture);
}

fn write_rope_scaling(writer: &mut Writer, rope: &Rope, architecture: &str) {
    let numbers = |factors: &[f64]| factors.iter().map(|&x| (x as f32).to_le_bytes().to_vec()).collect::<Vec<_>>();
    match &rope.scaling {
        RopeScaling::None => {}
        RopeScaling::Linear { factor } => {
            writer.text(&format!("{architecture}.rope.scaling.type"), "linear");
            writer.number(&format!("{architecture}.rope.scaling.factor"), *factor);
        }
        RopeScaling::Yarn(yarn) => {
            let key = |key: &str| format!("{architecture}.rope.scaling.{key}");
            writer.text(&key("type"), "yarn");
            writer.number(&key("factor"), yarn.factor);
            writer.count(&key("original_context_length"), yarn.original_context as usize);
            writer.number(&key("yarn_beta_fast"), yarn.fast_turns);
            writer.number(&key("yarn_beta_slow"), yarn.slow_turns);
        }
        RopeScaling::Long { factors, magnitude } => {
            writer.count(&format!("{architecture}.rope.scaling.original_context_length"), 64);
            writer.number(&format!("{architecture}.rope.scaling.attn_factor"), *magnitude);
            for name in ["long", "short"] {
                let name = format!("rope_factors_{name}.weight");
                writer.tensor(&name, &[factors.len()], kind(Dtype::F32), &numbers(factors));
            }
        }
        &RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            // llama.cpp's converter, `LlamaModel.generate_extra_tensors`.
            let factor_of = |i: usize| {
                let wavelength = 2.0 * std::f64::consts::PI * rope.theta.powf((2 * i) as f64 / rope.dims as f64);
                if wavelength < original_context / high_freq_factor {
                    1.0
                } else if wavelength > original_context / low_freq_factor {
                    factor
                } else {
                    let range = high_freq_factor - low_freq_factor;
                    let smooth = (original_context / wavelength - low_freq_factor) / range;
                    1.0 / ((1.0 - smooth) / factor + smooth)
                }
            };
            let factors: Vec<f64> = (0..rope.dims / 2).map(factor_of).collect();
            writer.tensor("rope_freqs.weight", &[factors.len()], kind(Dtype::F32), &numbers(&factors));
        }
    }
}
