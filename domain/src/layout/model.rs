//! The cache shape of a whole model.

use super::{
    BLOCK_TOKENS_DEFAULT, BLOCK_TOKENS_MAX, KvGroup, KvKind, LAYOUT_VERSION, PLAIN_VERSION, SLICE_BYTES_MIN, digest,
};
use crate::dtype::Dtype;
use crate::encoding::Encoding;
use serde::{Deserialize, Serialize};

/// The cache shape of a model, whatever ranks hold of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ModelLayout {
    /// Tokens per block.
    pub block_tokens: u32,
    /// Number format of the pool. States have formats of their own.
    pub dtype: Dtype,
    /// How records are kept in the tiers below the device.
    pub encoding: Encoding,
    /// The KV groups; a [`crate::GroupId`] is an index into them.
    pub groups: Vec<KvGroup>,
}

impl ModelLayout {
    /// Returns the default `block_tokens` for these groups: 16, doubled while a layer slice stays under 16 KiB, 64 at
    /// most. A state has the same size for any number, so it counts as none.
    pub fn default_block_tokens(dtype: Dtype, groups: &[KvGroup]) -> u32 {
        let of_tokens = groups.iter().filter(|group| !matches!(group.kind, KvKind::State { .. }));
        let slice = |group: &KvGroup| group.kind.head_bytes(1, dtype) * group.kind.heads() as usize;
        let per_token = of_tokens.map(slice).min().unwrap_or(0);
        let mut tokens = BLOCK_TOKENS_DEFAULT;
        while tokens < BLOCK_TOKENS_MAX && per_token * (tokens as usize) < SLICE_BYTES_MIN {
            tokens *= 2;
        }
        tokens
    }

    /// Returns the bytes of one head of a layer slice of group `group`.
    pub(super) fn head_bytes(&self, group: usize) -> usize {
        self.groups[group].kind.head_bytes(self.block_tokens, self.dtype)
    }

    /// Returns the number of model layers over all groups.
    pub fn layers(&self) -> usize {
        self.groups.iter().map(|g| g.layers.len()).sum()
    }

    /// Returns the first position whose block a query at `position` needs in group `group`.
    pub fn window_start(&self, group: usize, position: u32) -> u32 {
        self.groups[group].reach().map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Tells layouts apart that two workers must not mix, whatever each of their ranks holds. Equal on every machine
    /// for equal layouts. A layout that version 1 has keeps the fingerprint that it had there.
    pub fn fingerprint(&self) -> u64 {
        let is_plain = self.groups.iter().all(|group| group.kind.plain_words().is_some());
        let version = if is_plain { PLAIN_VERSION } else { LAYOUT_VERSION };
        let head = [version.into(), self.block_tokens.into(), self.dtype as u64, self.encoding as u64];
        let of_group = |group: &KvGroup| {
            let layers = group.layers.iter().map(|&layer| layer.into());
            let window = group.reach().map_or(u64::MAX, u64::from);
            let plain = group.kind.plain_words().filter(|_| is_plain);
            let other = plain.is_none().then(|| group.kind.words());
            let kind = plain.into_iter().flatten().chain(other.into_iter().flatten());
            let words: Vec<u64> = layers.chain(kind).chain([window]).collect();
            [group.layers.len() as u64].into_iter().chain(words)
        };
        digest(head.into_iter().chain(self.groups.iter().flat_map(of_group)))
    }
}
