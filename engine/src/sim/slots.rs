//! Where in a record the two words of a slot lie, whatever a layer keeps.

use domain::{KvKind, KvLayout};
use std::ops::Range;

/// Bytes of a tag.
pub(super) const WORD: usize = size_of::<u64>();

/// Where the words of one KV group's slots are. A slot of heads has its tag at the beginning of its key, and the
/// complement at that of its value; one of latents at the beginning of the latent, and of the rotated key. A state has
/// one slot a block, of the last position that was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// From one position to the next, in bytes: of the tag, and of the complement.
    steps: [usize; 2],
    /// Where the first complement is.
    complements: usize,
}

impl Slots {
    /// Returns those of a group. `None`: its layers have several heads, or no room for two words that are aligned.
    pub fn of(layout: &KvLayout, group: usize) -> Option<Self> {
        let whole = |numbers: u32| {
            let bytes = numbers as usize * layout.dtype.bytes();
            (bytes > 0 && bytes.is_multiple_of(WORD)).then_some(bytes)
        };
        match layout.groups[group].kind {
            KvKind::Heads { heads: 1, k_dim, v_dim } => {
                let steps = [whole(k_dim)?, whole(v_dim)?];
                Some(Self { steps, complements: layout.block_tokens as usize * steps[0] })
            }
            KvKind::Latent { width, rope } => {
                let (latent, rotated) = (whole(width)?, whole(rope)?);
                Some(Self { steps: [latent + rotated; 2], complements: latent })
            }
            KvKind::State { bytes } => {
                let is_room = bytes as usize >= 2 * WORD && (bytes as usize).is_multiple_of(WORD);
                is_room.then_some(Self { steps: [0; 2], complements: WORD })
            }
            KvKind::Heads { .. } => None,
        }
    }

    /// Returns where in the layer slice the tag and its complement of the block's `offset`-th position are.
    pub fn words(&self, offset: usize) -> [usize; 2] {
        [offset * self.steps[0], self.complements + offset * self.steps[1]]
    }

    /// Returns of so many first positions of a block those whose slots have kept what was written.
    pub fn kept(&self, positions: usize) -> Range<usize> {
        if self.is_state() { positions.saturating_sub(1)..positions } else { 0..positions }
    }

    /// Returns whether all positions of a block have one slot.
    pub(super) fn is_state(&self) -> bool {
        self.steps == [0; 2]
    }
}
