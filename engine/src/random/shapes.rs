//! The shapes that have names.

use serde_json::{Value, json};

/// Llama 3.1's scaling of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// Divides low frequencies.
    pub factor: f64,
    /// Context before scaling.
    pub original_context: u32,
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
    pub llama3: Option<Llama3Scaling>,
    /// A scaling of each frequency by a factor of its own, from this context on, of three quarters of each head.
    pub longrope: Option<u32>,
}

impl Shape {
    /// Returns the kind of `rope_scaling`, as config.json spells it.
    pub(super) fn rope_type(&self) -> &'static str {
        match self {
            Self { llama3: Some(_), .. } => "llama3",
            Self { longrope: Some(_), .. } => "longrope",
            _ => "default",
        }
    }

    /// `rope_scaling` of config.json.
    pub(super) fn rope_scaling(&self) -> Value {
        if let Some(scaling) = self.llama3 {
            return json!({
                "rope_type": self.rope_type(),
                "factor": scaling.factor,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": scaling.original_context,
            });
        }
        if self.longrope.is_some() {
            let pairs = self.head_dim * 3 / 4 / 2;
            let factors = |step: f64| (0..pairs).map(|pair| 1.0 + step * pair as f64).collect::<Vec<_>>();
            return json!({"rope_type": self.rope_type(), "short_factor": factors(0.125), "long_factor": factors(0.75)});
        }
        Value::Null
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
    llama3: None,
    longrope: None,
};

/// All named shapes.
pub static SHAPES: [Shape; 10] = [
    TINY,
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
        llama3: Some(Llama3Scaling { factor: 8.0, original_context: 128 }),
        ..TINY
    },
    Shape {
        name: "tiny-longrope",
        about: "for tests: longrope scaling of three quarters of each head",
        longrope: Some(64),
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
        llama3: Some(Llama3Scaling { factor: 32.0, original_context: 8192 }),
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
        llama3: Some(Llama3Scaling { factor: 8.0, original_context: 8192 }),
        ..TINY
    },
];
