//! Where slots are in the files.

use super::{DiskConfig, DiskError, STRIPE_BYTES};
use crate::mover::SLOTS_MIN;
use domain::KvLayout;
use kv_manager::tiers::Slot;
use std::os::unix::ffi::OsStrExt;
use transport::FILE_ALIGN;

/// Where slots are: those of each group follow those of the group before.
pub(super) struct SlotLayout {
    /// Slots of each group.
    pub(super) slots: u32,
    groups: Vec<Extent>,
}

struct Extent {
    begin: u64,
    slot_bytes: usize,
}

impl SlotLayout {
    pub(super) fn of(config: &DiskConfig, layout: &KvLayout) -> Result<Self, DiskError> {
        let slot_bytes = |group| FILE_ALIGN + (layout.stored_bytes(group) as u64).next_multiple_of(FILE_ALIGN);
        let each: u64 = (0..layout.groups.len()).map(slot_bytes).sum();
        let slots = config.bytes / each;
        if slots < SLOTS_MIN {
            return Err(DiskError::TooSmall { bytes: config.bytes, slots, each });
        }
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let mut begin = 0;
        let group = |group| {
            let at = Extent { begin, slot_bytes: slot_bytes(group) as usize };
            begin += slot_bytes(group) * u64::from(slots);
            at
        };
        Ok(Self { slots, groups: (0..layout.groups.len()).map(group).collect() })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.slot_bytes as u64).sum::<u64>() * u64::from(self.slots)
    }

    /// Returns the bytes of a frame: whatever the group, a slot fits.
    pub(super) fn frame_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.slot_bytes).max().unwrap_or(FILE_ALIGN as usize)
    }

    pub(super) fn offset(&self, slot: Slot) -> u64 {
        let group = &self.groups[usize::from(slot.group.0)];
        group.begin + group.slot_bytes as u64 * u64::from(slot.slot)
    }

    /// A digest of all that the meaning of a slot's number, and what lies there, depends on: the model, and with
    /// the folders and their order also where its bytes are.
    pub(super) fn shape(&self, layout: &KvLayout, config: &DiskConfig) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&layout.records_fingerprint().to_le_bytes());
        hasher.update(&config.weights);
        hasher.update(&self.slots.to_le_bytes());
        hasher.update(&STRIPE_BYTES.to_le_bytes());
        for folder in &config.folders {
            let name = folder.as_os_str().as_bytes();
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
        }
        let mut shape = [0; 8];
        shape.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(shape)
    }
}
