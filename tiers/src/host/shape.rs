//! What lies where in a slab.
//!
//! It begins with a head of [`HEAD`] bytes: [`MAGIC`], then as little-endian words of 8 bytes a version, the
//! worker and its life; the digest of the weights; as words again the fingerprint of the layout, the groups, the
//! slots of each, and for each group where its records begin and how many bytes one takes. At [`CHANGES_AT`] is a
//! word that grows whenever a slot has changed, so that who looks again knows whether there is something new.
//! Behind the head is the directory: for each group and slot [`ENTRY`] bytes, a generation of 8 and at
//! [`HEADER_AT`] the record's header, as on a disk. While a slot changes its generation is odd. So who maps the
//! slab finds a record by its header, copies it, and has it if the generation is even and the same before and
//! after; the checksum in the header says whether it is whole.

use domain::KvLayout;
use kv_manager::tiers::Slot;

/// Bytes of the head.
pub(super) const HEAD: usize = 4096;
/// Where the word is that grows, in a line of its own.
pub(super) const CHANGES_AT: usize = HEAD - 64;
/// Bytes of an entry of the directory.
pub(super) const ENTRY: usize = 128;
/// Where in an entry the header is.
pub(super) const HEADER_AT: usize = 64;
/// Records begin at multiples of this.
const RECORD_ALIGN: usize = 64;

pub(super) const MAGIC: [u8; 8] = *b"BTNKVHST";
/// 2: the fingerprint of the layout does not tell records of version 1 apart any more, so this does.
pub(super) const VERSION: u64 = 2;
/// Where the worker, its life, and what is the same in all slabs of a model are.
const WORKER_AT: usize = 16;
const MODEL_AT: usize = 32;
/// Where the slots of each group are.
pub(super) const SLOTS_AT: usize = 80;

/// Where things are in the slab of a model with so many slots.
#[derive(Clone)]
pub(super) struct Shape {
    /// Slots of each group.
    pub(super) slots: u32,
    model: Model,
    groups: Vec<Group>,
}

/// What the bytes of a record depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Model {
    /// Digest of the weights.
    pub(super) weights: [u8; 32],
    /// Fingerprint of the layout.
    pub(super) layout: u64,
}

/// Where the records of a group are.
#[derive(Clone)]
struct Group {
    begin: usize,
    each: usize,
}

/// Why a slab is not one to read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeadError {
    /// It is no slab.
    NoSlab,
    /// It is one, but of another model, version or size.
    Foreign,
}

/// Bytes that a slot of each group takes, with its entry in the directory.
pub(super) fn slot_bytes(layout: &KvLayout) -> usize {
    (0..layout.groups.len()).map(|group| record_bytes(layout, group) + ENTRY).sum()
}

fn record_bytes(layout: &KvLayout, group: usize) -> usize {
    layout.stored_bytes(group).next_multiple_of(RECORD_ALIGN)
}

impl Shape {
    pub(super) fn new(layout: &KvLayout, weights: [u8; 32], slots: u32) -> Self {
        let mut begin = HEAD + ENTRY * slots as usize * layout.groups.len();
        let group = |group| {
            let group = Group { begin, each: record_bytes(layout, group) };
            begin += group.each * slots as usize;
            group
        };
        let model = Model { weights, layout: layout.records_fingerprint() };
        Self { slots, model, groups: (0..layout.groups.len()).map(group).collect() }
    }

    /// That of the slab of `len` bytes that begins so, if it is one of the layout and the weights. Errors:
    /// [`HeadError`].
    pub(super) fn of(head: &[u8; HEAD], len: usize, layout: &KvLayout, weights: [u8; 32]) -> Result<Self, HeadError> {
        if head[..MAGIC.len()] != MAGIC {
            return Err(HeadError::NoSlab);
        }
        let mut slots = [0; 8];
        slots.copy_from_slice(&head[SLOTS_AT..SLOTS_AT + 8]);
        let slots = u32::try_from(u64::from_le_bytes(slots)).map_err(|_| HeadError::Foreign)?;
        let room = len.saturating_sub(HEAD) / slot_bytes(layout);
        if slots as usize > room {
            return Err(HeadError::Foreign);
        }
        let shape = Self::new(layout, weights, slots);
        let mut expected = shape.head(0, 0);
        expected[WORKER_AT..MODEL_AT].copy_from_slice(&head[WORKER_AT..MODEL_AT]);
        if expected == head[..CHANGES_AT] { Ok(shape) } else { Err(HeadError::Foreign) }
    }

    /// Returns the head of a slab of the worker in this life, up to the word that grows.
    pub(super) fn head(&self, worker: u32, life: u64) -> [u8; CHANGES_AT] {
        let words = [VERSION, worker.into(), life].map(u64::to_le_bytes);
        let model = [self.model.layout, self.groups.len() as u64, self.slots.into()].map(u64::to_le_bytes);
        let places = self.groups.iter().flat_map(|group| [group.begin, group.each]);
        let places = places.flat_map(|place| (place as u64).to_le_bytes());
        let bytes = MAGIC.into_iter().chain(words.into_iter().flatten()).chain(self.model.weights);
        let bytes = bytes.chain(model.into_iter().flatten()).chain(places);
        let mut head = [0; CHANGES_AT];
        head.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        head
    }

    /// Returns the bytes of the slab.
    pub(super) fn len(&self) -> usize {
        self.groups.last().map_or(HEAD, |group| group.begin + group.each * self.slots as usize)
    }

    /// Slots of all groups.
    pub(super) fn entries(&self) -> usize {
        self.groups.len() * self.slots as usize
    }

    /// Returns where the slot's entry is in the directory.
    pub(super) fn entry(&self, Slot { group, slot }: Slot) -> usize {
        assert!(slot < self.slots && usize::from(group.0) < self.groups.len(), "there is such a slot");
        HEAD + ENTRY * (usize::from(group.0) * self.slots as usize + slot as usize)
    }

    /// Returns where the slot's record is.
    pub(super) fn record(&self, Slot { group, slot }: Slot) -> usize {
        assert!(slot < self.slots, "there is such a slot");
        let group = &self.groups[usize::from(group.0)];
        group.begin + group.each * slot as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{encoded, layout};
    use domain::Encoding;

    #[test]
    fn a_head_that_is_not_all_as_it_should_be_is_refused() {
        let (layout, weights) = (layout(), [9; 32]);
        let shape = Shape::new(&layout, weights, 5);
        let mut head = [0; HEAD];
        head[..CHANGES_AT].copy_from_slice(&shape.head(3, 4));
        let of = |head: &[u8; HEAD], len| Shape::of(head, len, &layout, weights).map(|shape| shape.slots);
        assert_eq!(of(&head, shape.len()), Ok(5));
        assert_eq!(of(&head, shape.len() - 1), Err(HeadError::Foreign), "it is cut");
        let other = Shape::of(&head, shape.len(), &layout, [8; 32]).map(|shape| shape.slots);
        assert_eq!(other, Err(HeadError::Foreign), "of other weights");
        // Its records are no longer, so that it would fit.
        let other = Shape::of(&head, shape.len(), &encoded(Encoding::Int8), weights).map(|shape| shape.slots);
        assert_eq!(other, Err(HeadError::Foreign), "of another encoding");
        for at in 0..HEAD {
            let mut flipped = head;
            flipped[at] ^= 0x20;
            let expected = match at {
                _ if at < MAGIC.len() => Err(HeadError::NoSlab),
                // Whose it is, and what grows, is no matter.
                _ if (WORKER_AT..MODEL_AT).contains(&at) || at >= CHANGES_AT => Ok(5),
                _ => Err(HeadError::Foreign),
            };
            assert_eq!(of(&flipped, shape.len()), expected, "byte {at}");
        }
    }
}
