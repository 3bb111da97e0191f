//! The memory of a host tier: one sealed memfd that its worker alone writes, and that says itself what lies where.
//!
//! It begins with a head of [`HEAD`] bytes: [`MAGIC`], a version, then as little-endian words of 8 bytes the fingerprint of the layout,
//! the groups, the slots of each, and for each group where its records begin and how many bytes one takes. Behind the head is the directory:
//! for each group and slot [`ENTRY`] bytes, a generation of 8 and at [`HEADER_AT`] the record's header, as on a disk. While a slot
//! changes its generation is odd. So who maps the slab finds a record by its header, copies it, and has it if the generation is even
//! and the same before and after; the checksum in the header says whether it is whole.

use super::{HostConfig, HostError};
use crate::tiers::SLOTS_MIN;
use crate::tiers::records::{Records, Spot};
use domain::KvLayout;
use kv_manager::tiers::{Slot, TierRead, TierWrite};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use transport::{Memory, SealedMemory};

/// Bytes of the head.
pub(super) const HEAD: usize = 4096;
/// Bytes of an entry of the directory.
pub(super) const ENTRY: usize = 128;
/// Where in an entry the header is.
pub(super) const HEADER_AT: usize = 64;
/// Records begin at multiples of this.
const RECORD_ALIGN: usize = 64;

pub(super) const MAGIC: [u8; 8] = *b"BTNKVHST";
pub(super) const VERSION: u64 = 1;

/// The slab of one worker.
pub(super) struct Slab {
    memory: Arc<SealedMemory>,
    slots: u32,
    groups: Vec<Group>,
}

/// Where the records of a group are.
struct Group {
    begin: usize,
    each: usize,
}

impl Slab {
    /// An empty one of as many slots of each group as it has room for.
    pub(super) fn new(config: &HostConfig, layout: &KvLayout) -> Result<Self, HostError> {
        let record = |group| layout.record_bytes(group).next_multiple_of(RECORD_ALIGN);
        let each: usize = (0..layout.groups.len()).map(|group| record(group) + ENTRY).sum();
        let slots = config.bytes.saturating_sub(HEAD as u64) / each as u64;
        if slots < SLOTS_MIN {
            let (each, bytes) = (each as u64, config.bytes);
            return Err(HostError::TooSmall { bytes, slots, each, needed: HEAD as u64 + SLOTS_MIN * each });
        }
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let memory = Arc::new(SealedMemory::new(&format!("{}-host", config.name), HEAD + each * slots as usize)?);
        let mut begin = HEAD + ENTRY * slots as usize * layout.groups.len();
        let group = |group| {
            let group = Group { begin, each: record(group) };
            begin += group.each * slots as usize;
            group
        };
        let slab = Self { memory, slots, groups: (0..layout.groups.len()).map(group).collect() };
        slab.write_head(layout.fingerprint());
        Ok(slab)
    }

    /// Slots of each group.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn memory(&self) -> Arc<dyn Memory> {
        self.memory.clone()
    }

    fn write_head(&self, fingerprint: u64) {
        let words = [VERSION, fingerprint, self.groups.len() as u64, self.slots.into()].into_iter();
        let places = self.groups.iter().flat_map(|group| [group.begin as u64, group.each as u64]);
        let words = words.chain(places).flat_map(u64::to_le_bytes);
        let head: Vec<u8> = MAGIC.into_iter().chain(words).take(HEAD).collect();
        // SAFETY: the head is inside the memory, which nobody else knows yet.
        unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), self.memory.as_ptr(), head.len()) };
    }

    /// Puts a record into its slot.
    ///
    /// # Safety
    ///
    /// As of [`Records::put`], for the block.
    pub(super) unsafe fn put(&mut self, records: &Records, write: &TierWrite) {
        let generation = self.generation(write.place.slot);
        let changed = generation.load(Ordering::Relaxed) | 1;
        // Who sees anything of what follows sees the odd generation too, and who sees the even one sees all of it.
        generation.store(changed, Ordering::Relaxed);
        fence(Ordering::Release);
        // SAFETY: the slot is inside the slab, which this thread alone writes, through `&mut`; for the block the caller speaks.
        unsafe { records.put(write, self.spot(write.place.slot)) };
        generation.store(changed + 1, Ordering::Release);
    }

    /// Copies a record out of its slot, if it is the right one. Errors: why it is not.
    ///
    /// # Safety
    ///
    /// As of [`Records::take`], for the block.
    pub(super) unsafe fn take(&self, records: &Records, read: &TierRead) -> Result<(), String> {
        // SAFETY: the slot is inside the slab, which is written by `put` alone; for the block the caller speaks.
        unsafe { records.take(read, self.spot(read.place.slot)) }
    }

    fn generation(&self, slot: Slot) -> &AtomicU64 {
        // SAFETY: an entry is inside the memory, aligned, and its generation is only ever used as an atomic number.
        unsafe { AtomicU64::from_ptr(self.entry(slot).cast()) }
    }

    fn spot(&self, slot: Slot) -> Spot {
        let group = &self.groups[usize::from(slot.group.0)];
        let entry = self.entry(slot);
        // SAFETY: both are inside the memory, by the way it was measured out; `entry` saw that there is the slot.
        unsafe {
            let record = self.memory.as_ptr().add(group.begin + group.each * slot.slot as usize);
            Spot { header: entry.add(HEADER_AT), record }
        }
    }

    fn entry(&self, Slot { group, slot }: Slot) -> *mut u8 {
        assert!(slot < self.slots && usize::from(group.0) < self.groups.len(), "there is such a slot");
        let number = usize::from(group.0) * self.slots as usize + slot as usize;
        // SAFETY: the directory has an entry for each slot of each group.
        unsafe { self.memory.as_ptr().add(HEAD + ENTRY * number) }
    }
}
