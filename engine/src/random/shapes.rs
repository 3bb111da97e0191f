//! The shapes that have names.

use serde_json::{Value, json};

/// A scaling of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShapeScaling {
    /// None.
    None,
    /// Llama 3.1's, with this factor of low frequencies and this context before scaling.
    Llama3(f64, u32),
    /// YaRN, with this factor of low frequencies and this context before scaling.
    Yarn(f64, u32),
    /// YaRN where a config says all that it may say, with the same two.
    YarnTuned(f64, u32),
    /// By the length of the sequence, with this factor.
    Dynamic(f64),
    /// Of each frequency by a factor of its own, from this context on, of three quarters of each head.
    Longrope(u32),
}

/// Sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Numbers per head.
    pub head_dim: usize,
    /// Width of the feed-forward.
    pub ffn: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Longest context in tokens.
    pub context: usize,
    /// The output projection is the embedding.
    pub tied: bool,
    /// Biases in every projection that may have one in the family.
    pub biases: bool,
    /// Sliding window in tokens: of all layers (Mistral), or of the upper half (Qwen).
    pub window: Option<u32>,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies.
    pub scaling: ShapeScaling,
}

impl Shape {
    /// Returns the kind of `rope_scaling`, as config.json spells it.
    pub(super) fn rope_type(&self) -> &'static str {
        match self.scaling {
            ShapeScaling::None => "default",
            ShapeScaling::Llama3(..) => "llama3",
            ShapeScaling::Yarn(..) | ShapeScaling::YarnTuned(..) => "yarn",
            ShapeScaling::Dynamic(_) => "dynamic",
            ShapeScaling::Longrope(_) => "longrope",
        }
    }

    /// Returns `rope_scaling` of config.json.
    pub(super) fn rope_scaling(&self) -> Value {
        let mut scaling = match self.scaling {
            ShapeScaling::None => return Value::Null,
            ShapeScaling::Llama3(factor, original) => json!({
                "factor": factor,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": original,
            }),
            ShapeScaling::Yarn(factor, original) => {
                json!({"factor": factor, "original_max_position_embeddings": original})
            }
            ShapeScaling::YarnTuned(factor, original) => json!({
                "factor": factor,
                "original_max_position_embeddings": original,
                "beta_fast": 6.0,
                "beta_slow": 0.5,
                "mscale": 2.0,
                "mscale_all_dim": 0.5,
                "truncate": false,
            }),
            ShapeScaling::Dynamic(factor) => json!({"factor": factor}),
            ShapeScaling::Longrope(_) => {
                let pairs = self.head_dim * 3 / 4 / 2;
                let factors = |step: f64| (0..pairs).map(|pair| 1.0 + step * pair as f64).collect::<Vec<_>>();
                json!({"short_factor": factors(0.125), "long_factor": factors(0.75)})
            }
        };
        scaling["rope_type"] = json!(self.rope_type());
        scaling
    }
}

const TINY: Shape = Shape {
    name: "tiny",
    about: "for tests: 2 layers, hidden 64",
    hidden: 64,
    layers: 2,
    heads: 4,
    kv_heads: 2,
    head_dim: 16,
    ffn: 160,
    vocab: 512,
    context: 2048,
    tied: false,
    biases: false,
    window: None,
    rope_theta: 10_000.0,
    scaling: ShapeScaling::None,
};

/// All named shapes.
pub static SHAPES: [Shape; 15] = [
    TINY,
    Shape {
        name: "tiny-64",
        about: "for tests: heads of 64 numbers, which kernels for cards have",
        hidden: 128,
        head_dim: 64,
        ffn: 192,
        ..TINY
    },
    Shape {
        name: "tiny-64-yarn",
        about: "for tests: the same, with yarn rotary scaling",
        hidden: 128,
        head_dim: 64,
        ffn: 192,
        scaling: ShapeScaling::Yarn(4.0, 128),
        ..TINY
    },
    Shape { name: "tiny-tied", about: "for tests: the output projection is the embedding", tied: true, ..TINY },
    Shape { name: "tiny-bias", about: "for tests: biases wherever the family has them", biases: true, ..TINY },
    Shape {
        name: "tiny-wide",
        about: "for tests: heads wider than hidden / heads, an odd feed-forward",
        heads: 6,
        kv_heads: 3,
        head_dim: 32,
        ffn: 167,
        layers: 3,
        ..TINY
    },
    Shape {
        name: "tiny-window",
        about: "for tests: a sliding window of 24 tokens",
        layers: 4,
        window: Some(24),
        ..TINY
    },
    Shape {
        name: "tiny-llama3",
        about: "for tests: llama3 rotary scaling",
        rope_theta: 500_000.0,
        scaling: ShapeScaling::Llama3(8.0, 128),
        ..TINY
    },
    Shape { name: "tiny-yarn", about: "for tests: yarn rotary scaling", scaling: ShapeScaling::Yarn(4.0, 128), ..TINY },
    Shape {
        name: "tiny-yarn-tuned",
        about: "for tests: yarn rotary scaling with bounds and a magnitude of its own",
        scaling: ShapeScaling::YarnTuned(8.0, 128),
        ..TINY
    },
    Shape {
        name: "tiny-dynamic",
        about: "for tests: dynamic rotary scaling, and a short context",
        context: 256,
        scaling: ShapeScaling::Dynamic(2.0),
        ..TINY
    },
    Shape {
        name: "tiny-longrope",
        about: "for tests: longrope scaling of three quarters of each head",
        scaling: ShapeScaling::Longrope(64),
        ..TINY
    },
    Shape {
        name: "125m",
        about: "for measurements on a CPU",
        hidden: 768,
        layers: 12,
        heads: 12,
        kv_heads: 4,
        head_dim: 64,
        ffn: 2048,
        vocab: 32_000,
        context: 40_960,
        ..TINY
    },
    Shape {
        name: "1b",
        about: "the shape of Llama 3.2 1B",
        hidden: 2048,
        layers: 16,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        ffn: 8192,
        vocab: 128_256,
        context: 131_072,
        tied: true,
        rope_theta: 500_000.0,
        scaling: ShapeScaling::Llama3(32.0, 8192),
        ..TINY
    },
    Shape {
        name: "8b",
        about: "the shape of Llama 3.1 8B",
        hidden: 4096,
        layers: 32,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        ffn: 14_336,
        vocab: 128_256,
        context: 131_072,
        rope_theta: 500_000.0,
        scaling: ShapeScaling::Llama3(8.0, 8192),
        ..TINY
    },
];
