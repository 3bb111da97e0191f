//! Cards and models whose step times are simulated, with the source of every number.

/// What a card can do at best, densely (without the sparsity of some data sheets' figures).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Tensor-core operations a second on bf16 numbers.
    pub bf16_flops: f64,
    /// The same on fp8 numbers.
    pub fp8_flops: f64,
    /// Bytes a second that its memory delivers.
    pub memory_bytes_per_s: f64,
}

/// What a model is, as its config.json says. Llama's family: gated feed-forward, grouped queries, full attention, an
/// output projection that is not the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// `num_hidden_layers`.
    pub layers: u16,
    /// `hidden_size`.
    pub hidden: u32,
    /// `num_attention_heads`.
    pub heads: u32,
    /// `num_key_value_heads`.
    pub kv_heads: u32,
    /// Numbers per head.
    pub head_dim: u32,
    /// `intermediate_size`.
    pub ffn: u32,
    /// `vocab_size`.
    pub vocab: u32,
}

/// Number format of the layers' weights and of the products with them. KV, attention and the output projection are
/// bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Two bytes a weight.
    Bf16,
    /// One byte a weight.
    Fp8,
}

/// A model on one card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Its name in the configuration.
    pub name: &'static str,
    /// The card.
    pub card: Card,
    /// The model.
    pub shape: Shape,
    /// Its weights.
    pub precision: Precision,
}

/// NVIDIA H100 SXM5, 80 GB HBM3. "NVIDIA H100 Tensor Core GPU" data sheet: 1,979 TFLOPS bf16 and 3,958 TFLOPS fp8 with
/// sparsity, which is twice the dense rate; 3.35 TB/s.
const H100: Card = Card { bf16_flops: 989.4e12, fp8_flops: 1978.9e12, memory_bytes_per_s: 3.35e12 };

/// NVIDIA H200 SXM, 141 GB HBM3e. "NVIDIA H200 Tensor Core GPU" data sheet: the H100's tensor cores; 4.8 TB/s.
const H200: Card = Card { memory_bytes_per_s: 4.8e12, ..H100 };

/// Llama 3 8B: config.json of meta-llama/Meta-Llama-3-8B.
const LLAMA_3_8B: Shape =
    Shape { layers: 32, hidden: 4096, heads: 32, kv_heads: 8, head_dim: 128, ffn: 14_336, vocab: 128_256 };

/// Llama 3 70B: config.json of meta-llama/Meta-Llama-3-70B.
const LLAMA_3_70B: Shape =
    Shape { layers: 80, hidden: 8192, heads: 64, kv_heads: 8, head_dim: 128, ffn: 28_672, vocab: 128_256 };

/// All presets. 8B has bf16 weights (16 GB). 70B has fp8 weights (about 71 GB) so that it fits one card of either kind:
/// no collective between cards is simulated. An H100 that holds it has some 28,000 tokens of room for KV; nothing here
/// knows that, pools are as large as their configuration says.
pub(super) const PRESETS: [Preset; 4] = [
    Preset { name: "h100-8b", card: H100, shape: LLAMA_3_8B, precision: Precision::Bf16 },
    Preset { name: "h100-70b", card: H100, shape: LLAMA_3_70B, precision: Precision::Fp8 },
    Preset { name: "h200-8b", card: H200, shape: LLAMA_3_8B, precision: Precision::Bf16 },
    Preset { name: "h200-70b", card: H200, shape: LLAMA_3_70B, precision: Precision::Fp8 },
];

impl Preset {
    /// Returns the preset of this name.
    pub fn named(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// Returns the names of all presets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.name)
    }
}

impl Precision {
    /// Returns the bytes of a weight.
    pub(super) fn weight_bytes(self) -> f64 {
        match self {
            Precision::Bf16 => 2.0,
            Precision::Fp8 => 1.0,
        }
    }

    /// Operations a second of `card` on such weights, at best.
    pub(super) fn flops(self, card: &Card) -> f64 {
        match self {
            Precision::Bf16 => card.bf16_flops,
            Precision::Fp8 => card.fp8_flops,
        }
    }
}

impl Shape {
    /// Weights of the query, key and value projections of a layer, after whose products its K and V are written.
    pub(super) fn qkv_weights(&self) -> f64 {
        f64::from(self.hidden) * f64::from((self.heads + 2 * self.kv_heads) * self.head_dim)
    }

    /// Weights of a layer.
    pub(super) fn layer_weights(&self) -> f64 {
        let output = f64::from(self.heads * self.head_dim) * f64::from(self.hidden);
        self.qkv_weights() + output + 3.0 * f64::from(self.hidden) * f64::from(self.ffn)
    }

    /// Weights of the output projection.
    pub(super) fn head_weights(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocab)
    }

    /// Returns the bytes of K and V of a token in one layer, in bf16.
    pub(super) fn kv_bytes(&self) -> f64 {
        f64::from(2 * 2 * self.kv_heads * self.head_dim)
    }

    /// Operations of one query on one position in one layer: the products with K and with V, a multiplication and an
    /// addition each.
    pub(super) fn attention_flops(&self) -> f64 {
        f64::from(2 * 2 * self.heads * self.head_dim)
    }
}
