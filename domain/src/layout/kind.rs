//! What a layer keeps of its tokens.

use crate::dtype::Dtype;
use crate::encoding::{Encoding, GROUP_TOKENS, KvPart, Section};
use serde::{Deserialize, Serialize};

/// Tokens that a state is for: to compute position `p` takes the state after `p - 1`, and nothing before it.
const STATE_WINDOW: u32 = 2;

/// What each layer of a KV group keeps in a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum KvKind {
    /// Keys and values of each token, by heads.
    Heads {
        /// KV heads per layer.
        heads: u32,
        /// Numbers of a key.
        k_dim: u32,
        /// Numbers of a value.
        v_dim: u32,
    },
    /// One latent of each token, of which all heads make their keys and values (multi-head latent attention).
    Latent {
        /// Numbers of a latent.
        width: u32,
        /// Numbers of the rotated key that all heads share, behind the latent.
        rope: u32,
    },
    /// What a recurrent layer knows of all tokens so far: in each block, as it was after the block's last token. Its
    /// bytes mean something to the device alone.
    State {
        /// Bytes per layer.
        bytes: u32,
    },
}

impl KvKind {
    /// Returns the kind of `heads` heads whose keys and values have `dim` numbers each.
    pub fn of_heads(heads: u32, dim: u32) -> Self {
        Self::Heads { heads, k_dim: dim, v_dim: dim }
    }

    /// Returns how many parts of equal size a layer slice can be divided into between ranks: its KV heads. Latents and
    /// states are held whole.
    pub fn heads(self) -> u32 {
        match self {
            Self::Heads { heads, .. } => heads,
            Self::Latent { .. } | Self::State { .. } => 1,
        }
    }

    /// Returns the bytes of one head of a layer slice.
    pub(super) fn head_bytes(self, block_tokens: u32, dtype: Dtype) -> usize {
        let tokens = block_tokens as usize * dtype.bytes();
        match self {
            Self::Heads { k_dim, v_dim, .. } => tokens * (k_dim as usize + v_dim as usize),
            Self::Latent { width, rope } => tokens * (width as usize + rope as usize),
            Self::State { bytes } => bytes as usize,
        }
    }

    /// Returns what a layer slice is made of, one behind the other. A lossy encoding works as follows:
    ///
    /// - `Heads`: the keys of a head have a scale for each [`GROUP_TOKENS`] tokens, and so have its values.
    /// - `Latent`: the latent of each token has a scale, and so has its rotated key, whose numbers are of another size.
    /// - `State`: it does not apply. Errors would add up over all tokens to come.
    pub(super) fn part(self, block_tokens: u32, dtype: Dtype, encoding: Encoding) -> KvPart {
        let of_tokens = |dim: u32| {
            let dim = dim as usize;
            Section { numbers: block_tokens as usize * dim, group: GROUP_TOKENS as usize * dim }
        };
        let of_one = |dim: u32| Section { numbers: dim as usize, group: dim as usize };
        match self {
            Self::Heads { k_dim, v_dim, .. } if k_dim == v_dim => KvPart::new(dtype, encoding, &[of_tokens(k_dim)]),
            Self::Heads { k_dim, v_dim, .. } => KvPart::new(dtype, encoding, &[of_tokens(k_dim), of_tokens(v_dim)]),
            Self::Latent { width, rope: 0 } => KvPart::new(dtype, encoding, &[of_one(width)]),
            Self::Latent { width, rope } => KvPart::new(dtype, encoding, &[of_one(width), of_one(rope)]),
            Self::State { bytes } => KvPart::opaque(bytes as usize),
        }
    }

    /// Returns what tells heads of one width apart, in words of a fingerprint of version 1. That has no other kinds.
    pub(super) fn plain_words(self) -> Option<[u64; 2]> {
        match self {
            Self::Heads { heads, k_dim, v_dim } if k_dim == v_dim => Some([heads.into(), k_dim.into()]),
            Self::Heads { .. } | Self::Latent { .. } | Self::State { .. } => None,
        }
    }

    /// Returns what tells the kind apart, in words of a fingerprint: as many for each kind.
    pub(super) fn words(self) -> [u64; 4] {
        match self {
            Self::Heads { heads, k_dim, v_dim } => [0, heads.into(), k_dim.into(), v_dim.into()],
            Self::Latent { width, rope } => [1, width.into(), rope.into(), 0],
            Self::State { bytes } => [2, bytes.into(), 0, 0],
        }
    }
}

/// The layers that share a cache shape.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KvGroup {
    /// Model layers of this group, rising. The record of a rank that holds all of them has them in this order.
    pub layers: Vec<u16>,
    /// What each of them keeps.
    pub kind: KvKind,
    /// Sliding window in tokens: position `p` attends to `p - window + 1 ..= p`. `None`: full attention. A state has no
    /// window of its own.
    pub window: Option<u32>,
}

impl KvGroup {
    /// Returns how many tokens, itself included, a position needs blocks of. `None`: all before it.
    pub fn reach(&self) -> Option<u32> {
        match self.kind {
            KvKind::Heads { .. } | KvKind::Latent { .. } => self.window,
            KvKind::State { .. } => Some(STATE_WINDOW),
        }
    }
}
