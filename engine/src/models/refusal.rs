//! Why a model is not served, and what it needs that is not computed.

use std::fmt;

/// Something that a model needs and that is not computed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Feed-forwards of which each token takes some.
    Experts,
    /// Keys and values that are kept compressed.
    LatentAttention,
    /// Attention that selects the tokens it reads.
    SparseAttention,
    /// Logits of attention that no token has.
    Sinks,
    /// Layers with a state, as Mamba has.
    StateSpace,
    /// Attention whose cache is one matrix; recurrent layers are named so, too.
    LinearAttention,
    /// Layers that look at some tokens before.
    Convolution,
    /// Norms that subtract the mean.
    LayerNorm,
    /// Positions that are not rotations.
    Positions,
    /// Decoder layers of another form.
    Layers,
    /// An encoder whose output the decoder reads.
    EncoderDecoder,
    /// Attention in both directions.
    Encoder,
    /// Input that is pictures.
    Images,
    /// Input or output that is sound.
    Sound,
    /// Output that is pictures.
    Pictures,
    /// Text that is not written token by token.
    Diffusion,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Experts => "a mixture of experts",
            Self::LatentAttention => "multi-head latent attention (MLA)",
            Self::SparseAttention => "sparse attention",
            Self::Sinks => "attention sinks",
            Self::StateSpace => "state-space layers (Mamba)",
            Self::LinearAttention => "linear attention or another recurrence",
            Self::Convolution => "layers of short convolutions",
            Self::LayerNorm => "layer norms (supported are RMS norms)",
            Self::Positions => "positions that are not rotary",
            Self::Layers => "decoder layers of a form that no supported family has",
            Self::EncoderDecoder => "an encoder beside the decoder",
            Self::Encoder => "an encoder, which gives vectors and no text",
            Self::Images => "images as input",
            Self::Sound => "sound",
            Self::Pictures => "the making of pictures",
            Self::Diffusion => "text by diffusion instead of token by token",
        })
    }
}

/// Why a model is not served. Each says what would work instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It needs something that is not computed.
    #[error("{key} is {found:?}: the model needs {}, not supported here; what works instead: {instead}", list(.needs))]
    Needs {
        /// Where it says so.
        key: String,
        /// What stands there.
        found: String,
        /// What it needs.
        needs: Vec<Feature>,
        /// What works.
        instead: String,
    },
    /// Nothing is known of it.
    #[error("{key} is {found:?}, not supported here; supported: {supported}; what works instead: {instead}")]
    Unknown {
        /// Where it says so.
        key: String,
        /// What stands there.
        found: String,
        /// The families.
        supported: String,
        /// What works.
        instead: String,
    },
    /// It is something else than a language model, or has weights that are not read.
    #[error("{key} is {found:?}: {what}; what works instead: {instead}")]
    Other {
        /// Where it says so.
        key: String,
        /// What stands there.
        found: String,
        /// What it is.
        what: &'static str,
        /// What works.
        instead: &'static str,
    },
}

fn list(features: &[Feature]) -> String {
    features.iter().map(Feature::to_string).collect::<Vec<_>>().join(" and ")
}
