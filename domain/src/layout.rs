//! Record layout: where in a block's bytes each layer, head and token lies. The one definition of it.
//!
//! A record is `[layer][kv_head][k|v][token][head_dim]`, little endian, and has the same bytes on every device and
//! on the wire. A layer slice is contiguous; inside it the heads are in order, so a range of heads is one piece.
//! The tiers below the device keep it as its [`Encoding`] says.

use crate::dtype::Dtype;
use crate::encoding::{Encoding, GROUP_TOKENS, KvPart};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Version of the layout; part of block identity.
const LAYOUT_VERSION: u64 = 1;

/// Smallest layer slice that is worth a read of its own, in bytes.
pub const SLICE_BYTES_MIN: usize = 16 * 1024;
/// Default tokens per block.
pub const BLOCK_TOKENS_DEFAULT: u32 = 16;
/// Tokens per block are not raised beyond this to reach [`SLICE_BYTES_MIN`].
pub const BLOCK_TOKENS_MAX: u32 = 64;

/// The layers that share a cache shape.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KvGroup {
    /// Model layers of this group, rising. The record holds them in this order.
    pub layers: Vec<u16>,
    /// KV heads per layer.
    pub kv_heads: u32,
    /// Numbers per head.
    pub head_dim: u32,
    /// Sliding window in tokens: position `p` attends to `p - window + 1 ..= p`. `None`: full attention.
    pub window: Option<u32>,
}

/// The cache shape of a model on a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KvLayout {
    /// Tokens per block.
    pub block_tokens: u32,
    /// Number format of the pool.
    pub dtype: Dtype,
    /// How records are kept in the tiers below the device.
    pub encoding: Encoding,
    /// The KV groups; a [`crate::GroupId`] is an index into them.
    pub groups: Vec<KvGroup>,
}

impl KvLayout {
    /// Returns the default `block_tokens` for these groups: 16, doubled while a layer slice stays under 16 KiB, 64 at
    /// most.
    pub fn default_block_tokens(dtype: Dtype, groups: &[KvGroup]) -> u32 {
        let per_token =
            groups.iter().map(|g| (g.kv_heads * g.head_dim * 2) as usize * dtype.bytes()).min().unwrap_or(1);
        let mut tokens = BLOCK_TOKENS_DEFAULT;
        while tokens < BLOCK_TOKENS_MAX && per_token * (tokens as usize) < SLICE_BYTES_MIN {
            tokens *= 2;
        }
        tokens
    }

    /// Returns the bytes of one layer slice of a block of group `group`.
    pub fn slice_bytes(&self, group: usize) -> usize {
        let g = &self.groups[group];
        (g.kv_heads * 2 * self.block_tokens * g.head_dim) as usize * self.dtype.bytes()
    }

    /// Returns the bytes of a record (all layer slices of a block) of group `group`.
    pub fn record_bytes(&self, group: usize) -> usize {
        self.slice_bytes(group) * self.groups[group].layers.len()
    }

    /// Returns where in the record of group `group` the slice of its `index`-th layer lies.
    pub fn slice_range(&self, group: usize, index: usize) -> Range<usize> {
        let bytes = self.slice_bytes(group);
        index * bytes..(index + 1) * bytes
    }

    /// Returns the number of model layers over all groups.
    pub fn layers(&self) -> usize {
        self.groups.iter().map(|g| g.layers.len()).sum()
    }

    /// Returns the KV bytes of one token over all groups.
    pub fn token_bytes(&self) -> usize {
        (0..self.groups.len()).map(|g| self.record_bytes(g)).sum::<usize>() / self.block_tokens as usize
    }

    /// Returns the first position that a query at `position` attends to in group `group`.
    pub fn window_start(&self, group: usize, position: u32) -> u32 {
        self.groups[group].window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Returns the bytes of a record of group `group` in the tiers below the device.
    pub fn stored_bytes(&self, group: usize) -> usize {
        self.part(group).stored_bytes_of(self.record_bytes(group))
    }

    /// Returns the bytes of one token over all groups in the tiers below the device.
    pub fn stored_token_bytes(&self) -> f32 {
        (0..self.groups.len()).map(|group| self.stored_bytes(group)).sum::<usize>() as f32 / self.block_tokens as f32
    }

    /// Writes the record of group `group` as the tiers below the device keep it.
    ///
    /// # Panics
    /// `record` is not of [`KvLayout::record_bytes`] bytes, or `stored` not of [`KvLayout::stored_bytes`].
    #[inline(always)]
    pub fn encode(&self, group: usize, record: &[u8], stored: &mut [u8]) {
        self.check_record(group, record);
        self.part(group).encode(record, stored);
    }

    /// Writes the record of group `group` as the device has it. Any bytes are some record.
    ///
    /// # Panics
    /// As [`KvLayout::encode`].
    #[inline(always)]
    pub fn decode(&self, group: usize, stored: &[u8], record: &mut [u8]) {
        self.check_record(group, record);
        self.part(group).decode(stored, record);
    }

    /// Panics unless `record` is as long as one of group `group`.
    pub fn check_record(&self, group: usize, record: &[u8]) {
        assert_eq!(record.len(), self.record_bytes(group), "a record of group {group}");
    }

    /// Returns what records of group `group` are made of.
    pub fn part(&self, group: usize) -> KvPart {
        let head_dim = self.groups[group].head_dim as usize;
        let numbers = self.block_tokens as usize * head_dim;
        KvPart::new(self.dtype, self.encoding, numbers, GROUP_TOKENS as usize * head_dim)
    }

    /// Tells layouts apart that two workers must not mix. Equal on every machine for equal layouts.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        let mut word = |value: u64| {
            hasher.update(&value.to_le_bytes());
        };
        word(LAYOUT_VERSION);
        word(self.block_tokens.into());
        word(self.dtype as u64);
        word(self.encoding as u64);
        for group in &self.groups {
            word(group.layers.len() as u64);
            group.layers.iter().for_each(|&layer| word(layer.into()));
            word(group.kv_heads.into());
            word(group.head_dim.into());
            word(group.window.map_or(u64::MAX, u64::from));
        }
        u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("a digest has 32 bytes"))
    }
}
