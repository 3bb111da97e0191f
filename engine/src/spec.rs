//! What a decoder-only model is, after config.json was understood: plain data that a device and a model definition
//! read.

use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, ModelLayout, Token};

/// Shape and constants of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Name of the family, as `model_type` says it: `llama`, `qwen3`, `gemma2`, ...
    pub family: &'static str,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads; divides `heads`.
    pub kv_heads: usize,
    /// Numbers per head; need not be `hidden / heads`.
    pub head_dim: usize,
    /// Feed-forward of each layer.
    pub feed_forward: Vec<FeedForward>,
    /// Where a layer's norms stand.
    pub norms: NormPlacement,
    /// Added to the mean square in RMS norms.
    pub norm_eps: f32,
    /// Added to the weights of RMS norms: 1 where a checkpoint holds their distance from 1.
    pub norm_offset: f32,
    /// The feed-forward's activation.
    pub activation: Activation,
    /// Rotary embedding of each layer.
    pub ropes: Vec<Rope>,
    /// Longest context in tokens.
    pub context: usize,
    /// The output projection is the embedding.
    pub tied: bool,
    /// Biases on the query, key and value projections.
    pub qkv_bias: bool,
    /// A bias on the attention's output projection.
    pub output_bias: bool,
    /// Biases in the feed-forward.
    pub mlp_bias: bool,
    /// RMS norm on queries and keys before the rotary embedding.
    pub qk_norm: QkNorm,
    /// Queries, keys and values are one tensor of a checkpoint, and so are gate and up.
    pub fused: bool,
    /// Multiplies the rows of the embedding.
    pub embedding_scale: f32,
    /// Multiplies what attention and feed-forward add to the residual stream.
    pub residual_scale: f32,
    /// Multiplies attention scores: `1 / sqrt(head_dim)` in most families.
    pub attention_scale: f32,
    /// Multiplies queries by their position.
    pub query_growth: Option<QueryGrowth>,
    /// Soft cap of attention scores: `cap * tanh(score / cap)`.
    pub attention_cap: Option<f32>,
    /// Multiplies logits.
    pub logits_scale: f32,
    /// Soft cap of logits, after their scale.
    pub logits_cap: Option<f32>,
    /// Attention of each layer.
    pub attention: Vec<Attention>,
    /// Number format of the weights (of most of them, where they are mixed).
    pub dtype: Dtype,
    /// Tokens that end a sequence (config.json and generation_config.json).
    pub eos: Vec<Token>,
    /// Token that begins a sequence, where the model has one.
    pub bos: Option<Token>,
}

/// What a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// All tokens before.
    Full,
    /// The last tokens, itself included; at least one.
    Window(u32),
}

impl Attention {
    /// Returns the window in tokens. `None`: there is none.
    pub fn window(self) -> Option<u32> {
        match self {
            Self::Full => None,
            Self::Window(tokens) => Some(tokens),
        }
    }
}

impl From<Option<u32>> for Attention {
    /// Takes a window in tokens; `None`: full attention.
    fn from(window: Option<u32>) -> Self {
        window.map_or(Self::Full, Self::Window)
    }
}

/// The part of a layer after attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// Gate, up and down projections that all tokens take.
    Dense {
        /// Outputs of gate and up.
        width: usize,
    },
}

impl FeedForward {
    /// Returns the outputs of gate and up.
    pub fn width(self) -> usize {
        let Self::Dense { width } = self;
        width
    }
}

/// Where a layer has RMS norms over the width of the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// On what attention and feed-forward read.
    Before,
    /// On what they add.
    After,
    /// On both.
    Both,
}

/// RMS norm on queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// On each head; all heads have the same weights.
    Heads,
    /// On all query heads together, and on all key heads together.
    Width,
}

/// Activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e^-x)`, also called swish.
    Silu,
    /// GELU by its approximation with a hyperbolic tangent.
    GeluTanh,
}

/// How queries grow with their position, so that attention stays sharp over long contexts (Hugging Face transformers,
/// `modeling_ministral3.py`, `get_llama_4_attn_scale`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryGrowth {
    /// Growth per logarithm of contexts.
    pub beta: f32,
    /// Context in tokens, above 0; queries of the first one do not grow.
    pub original_context: u32,
}

impl QueryGrowth {
    /// Returns what a query at `position` is multiplied by, from 1.
    pub fn at(&self, position: u32) -> f32 {
        let contexts = position / self.original_context;
        1.0 + self.beta * (1.0 + contexts as f32).ln()
    }
}

/// Rotary position embedding, in the rotate-half convention of Hugging Face.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// How many numbers of a head are rotated, even: the first ones. The others stay as they are.
    pub dims: usize,
    /// Scaling of the frequencies.
    pub scaling: RopeScaling,
}

/// YaRN's scaling (Hugging Face transformers, `modeling_rope_utils.py`, `_compute_yarn_parameters`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Divides low frequencies.
    pub factor: f64,
    /// Frequencies that turn more often than this within the original context stay as they are.
    pub fast_turns: f64,
    /// Frequencies that turn less often than this are low. Between both, the share that is divided is linear in the
    /// index of the frequency.
    pub slow_turns: f64,
    /// Both bounds are widened to whole indices.
    pub whole_pairs: bool,
    /// Context length before scaling, in tokens.
    pub original_context: f64,
    /// Multiplies cosines and sines.
    pub magnitude: f64,
}

/// How the frequencies are scaled for long contexts.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All by one factor.
    Linear {
        /// Divides every frequency.
        factor: f64,
    },
    /// Llama 3.1's: by wavelength (Hugging Face transformers, `modeling_rope_utils.py`, `_compute_llama3_parameters`).
    Llama3 {
        /// Divides low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are low frequencies.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` stay as they are.
        high_freq_factor: f64,
        /// Context length before scaling.
        original_context: f64,
    },
    /// YaRN's: by how often a frequency turns within the original context.
    Yarn(Yarn),
    /// Phi-3's: each by a factor of its own (Hugging Face transformers, `modeling_rope_utils.py`,
    /// `_compute_longrope_parameters`).
    Long {
        /// Divides each frequency: `dims / 2` factors.
        factors: Vec<f64>,
        /// Multiplies cosines and sines.
        magnitude: f64,
    },
}

impl Rope {
    /// Returns what cosines and sines are multiplied by.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn(Yarn { magnitude, .. }) | RopeScaling::Long { magnitude, .. } => magnitude,
            RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. } => 1.0,
        }
    }

    /// Returns the longest context in tokens of a model whose config.json names `context`. YaRN is switched on by its
    /// factor alone, and few change the context along with it.
    pub(crate) fn context(&self, context: usize) -> usize {
        match self.scaling {
            RopeScaling::Yarn(yarn) => context.max((yarn.factor * yarn.original_context) as usize),
            _ => context,
        }
    }
}

impl ModelSpec {
    /// Returns the sliding window of each layer, in tokens; `None`: full attention.
    pub fn windows(&self) -> Vec<Option<u32>> {
        self.attention.iter().map(|attention| attention.window()).collect()
    }

    /// Returns the width of the widest feed-forward.
    pub fn feed_forward_width_max(&self) -> usize {
        self.feed_forward.iter().map(|feed_forward| feed_forward.width()).max().unwrap_or(0)
    }

    /// Returns the KV groups of the model: layers that keep the same of their tokens, for as long, share one, in order
    /// of first appearance.
    pub fn kv_groups(&self) -> Vec<KvGroup> {
        let mut groups: Vec<KvGroup> = Vec::new();
        for (layer, attention) in (0..).zip(&self.attention) {
            let kind = KvKind::of_heads(self.kv_heads as u32, self.head_dim as u32);
            let window = attention.window();
            match groups.iter_mut().find(|group| (group.kind, group.window) == (kind, window)) {
                Some(group) => group.layers.push(layer),
                None => groups.push(KvGroup { layers: vec![layer], kind, window }),
            }
        }
        groups
    }

    /// Returns the cache layout of the model with a pool of `dtype`; `block_tokens`: `None` for the default of the
    /// shape.
    pub fn kv_layout(&self, dtype: Dtype, block_tokens: Option<u32>) -> KvLayout {
        let groups = self.kv_groups();
        let block_tokens = block_tokens.unwrap_or_else(|| ModelLayout::default_block_tokens(dtype, &groups));
        KvLayout::whole(ModelLayout { block_tokens, dtype, encoding: Encoding::Exact, groups })
    }
}
