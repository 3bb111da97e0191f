//! Record layout: where in a block's bytes each layer, head and token lies. The one definition of it.
//!
//! A model has KV groups; each is of one kind ([`KvKind`]). A record is the KV of one block in one group, one slice
//! per layer, little endian, with the same bytes on every device and on the wire:
//!
//! | kind | slice of a layer |
//! | --- | --- |
//! | `Heads` | `[head]`, each `[token][k_dim]` of keys, then `[token][v_dim]` of values |
//! | `Latent` | `[token]`, each `[width]` of latents, then `[rope]` of rotated keys |
//! | `State` | what the layer keeps of all tokens up to the end of the block, as the device wrote it |
//!
//! A layer slice is contiguous; inside it the heads are in order, so a range of heads is one piece.
//!
//! [`ModelLayout`] is of the whole model, and its fingerprint is what workers agree on. A [`Shard`] is what one rank
//! holds of it, and [`KvLayout`] is both: it says how large records, slices and pools of the rank are. The tiers below
//! the device keep a record as its [`Encoding`] says.

mod kind;
mod model;
mod shard;
#[cfg(test)]
mod tests;

pub use kind::{KvGroup, KvKind};
pub use model::ModelLayout;
pub use shard::Shard;

use crate::encoding::{Encoding, KvPart};
use std::ops::{Deref, Range};

/// Version of the layout; part of what tiers outlive a process with, and of the fingerprint of every layout that
/// [`PLAIN_VERSION`] does not have.
///
/// 2: keys and values have widths of their own, latents and states are kinds, the rank's shard is told apart from the
/// model. 1: heads of one width.
pub const LAYOUT_VERSION: u32 = 2;
/// Version in the fingerprint of a layout that has only heads of one width. Its records have the bytes that they had in
/// version 1, so workers of release 0.2.0 read them.
const PLAIN_VERSION: u32 = 1;

/// Smallest layer slice that is worth a read of its own, in bytes.
pub const SLICE_BYTES_MIN: usize = 16 * 1024;
/// Default tokens per block.
pub const BLOCK_TOKENS_DEFAULT: u32 = 16;
/// Tokens per block are not raised beyond this to reach [`SLICE_BYTES_MIN`].
pub const BLOCK_TOKENS_MAX: u32 = 64;

/// What a rank holds of a model's cache. Dereferences to the model's layout; the sizes here are the rank's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KvLayout {
    model: ModelLayout,
    shard: Shard,
}

impl Deref for KvLayout {
    type Target = ModelLayout;

    fn deref(&self) -> &ModelLayout {
        &self.model
    }
}

impl KvLayout {
    /// Returns the layout of a rank that holds all of the model.
    pub fn whole(model: ModelLayout) -> Self {
        let shard = Shard::whole(&model);
        Self { model, shard }
    }

    /// Returns the layout of a rank that holds this shard. `None`: it is none of the model.
    pub fn of(model: ModelLayout, shard: Shard) -> Option<Self> {
        shard.is_of(&model).then_some(Self { model, shard })
    }

    /// Returns the same, kept in another encoding below the device.
    pub fn with_encoding(self, encoding: Encoding) -> Self {
        Self { model: ModelLayout { encoding, ..self.model }, ..self }
    }

    /// Returns the layout of the whole model.
    pub fn model(&self) -> &ModelLayout {
        &self.model
    }

    /// Returns what this rank holds of it.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Returns whether this rank holds all of the model.
    pub fn is_whole(&self) -> bool {
        self.shard == Shard::whole(&self.model)
    }

    /// Returns the model layers of group `group` that this rank holds, rising. Its record holds them in this order.
    pub fn held_layers(&self, group: usize) -> &[u16] {
        &self.model.groups[group].layers[self.layer_places(group)]
    }

    /// Returns which layers of the group's, by their place in it, this rank holds.
    fn layer_places(&self, group: usize) -> Range<usize> {
        let place = |layer| self.model.groups[group].layers.partition_point(|&other| other < layer);
        place(self.shard.layers.start)..place(self.shard.layers.end)
    }

    /// Returns the bytes of one layer slice of a block of group `group`.
    pub fn slice_bytes(&self, group: usize) -> usize {
        self.model.head_bytes(group) * self.shard.heads[group].len()
    }

    /// Returns the bytes of a record (all layer slices of a block) of group `group`.
    pub fn record_bytes(&self, group: usize) -> usize {
        self.slice_bytes(group) * self.layer_places(group).len()
    }

    /// Returns where in the record of group `group` the slice of its `index`-th layer lies.
    pub fn slice_range(&self, group: usize, index: usize) -> Range<usize> {
        let bytes = self.slice_bytes(group);
        index * bytes..(index + 1) * bytes
    }

    /// Returns where in a record of a rank that holds all of the model the slices of this rank lie, in their order.
    /// Shards that divide a model divide its records so.
    pub fn ranges_in_whole(&self, group: usize) -> impl Iterator<Item = Range<usize>> {
        let head_bytes = self.model.head_bytes(group);
        let layer_bytes = head_bytes * self.model.groups[group].kind.heads() as usize;
        let heads = &self.shard.heads[group];
        let (begin, end) = (heads.start as usize * head_bytes, heads.end as usize * head_bytes);
        self.layer_places(group).map(move |layer| layer * layer_bytes + begin..layer * layer_bytes + end)
    }

    /// Returns the KV bytes of one token over all groups; of states the share of a token in those of a block.
    pub fn token_bytes(&self) -> usize {
        (0..self.groups.len()).map(|g| self.record_bytes(g)).sum::<usize>() / self.block_tokens as usize
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
        let ModelLayout { block_tokens, dtype, encoding, .. } = self.model;
        self.model.groups[group].kind.part(block_tokens, dtype, encoding)
    }

    /// Tells records apart that must not be taken for each other: by the model's fingerprint, and by what the rank
    /// holds of it, unless that is all. Equal on every machine for equal layouts.
    pub fn records_fingerprint(&self) -> u64 {
        if self.is_whole() {
            return self.model.fingerprint();
        }
        let shard = &self.shard;
        let heads = shard.heads.iter().flat_map(|heads| [heads.start.into(), heads.end.into()]);
        let layers = [shard.layers.start.into(), shard.layers.end.into()];
        digest([self.model.fingerprint()].into_iter().chain(layers).chain(heads))
    }
}

/// Returns 64 bits of a digest over these words.
fn digest(words: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    words.for_each(|word| {
        hasher.update(&word.to_le_bytes());
    });
    u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("a digest has 32 bytes"))
}
