//! A slab that another worker writes, or wrote, for a reader. What changed while it was read does not count.

use super::file::SlabFile;
use super::generation;
use super::shape::{CHANGES_AT, HEAD, HEADER_AT, HeadError, Shape};
use crate::records::Spot;
use domain::KvLayout;
use kv_manager::tiers::Slot;
use kv_manager::tiers::header::{HEADER, RecordHeader};
use std::sync::atomic::AtomicU64;
use transport::{Memory, copy_racing_cached};

/// A slab, mapped for reading.
pub(super) struct View {
    pub(super) file: SlabFile,
    pub(super) shape: Shape,
}

impl View {
    /// Opens the slab in the file, if its records are of the layout and the weights. Errors: they are not, with the
    /// file.
    pub(super) fn new(file: SlabFile, layout: &KvLayout, weights: [u8; 32]) -> Result<Self, (SlabFile, HeadError)> {
        let mut head = [0; HEAD];
        assert!(HEAD <= file.len(), "a file that is opened has room for a head");
        // SAFETY: the head is inside the mapping.
        unsafe { copy_racing_cached(file.as_ptr(), head.as_mut_ptr(), HEAD) };
        match Shape::of(&head, file.len(), layout, weights) {
            Ok(shape) => Ok(Self { file, shape }),
            Err(error) => Err((file, error)),
        }
    }

    /// Returns a word that is different after each change.
    pub(super) fn changes(&self) -> u64 {
        generation::now(self.word(CHANGES_AT))
    }

    /// Returns a number that is different after each change of the slot, and odd during one.
    pub(super) fn generation(&self, slot: Slot) -> u64 {
        generation::now(self.word(self.shape.entry(slot)))
    }

    /// Returns the header in the slot, if it is whole and the slot still has this generation.
    pub(super) fn header(&self, slot: Slot, generation: u64) -> Option<RecordHeader> {
        let mut header = [0; HEADER];
        let copied = self.copied(slot, generation, |entry, _| {
            // SAFETY: the entry is inside the mapping.
            unsafe { copy_racing_cached(entry.add(HEADER_AT), header.as_mut_ptr(), HEADER) };
        });
        copied.then(|| RecordHeader::decode(&header).ok()).flatten()
    }

    /// Copies header and record of the slot. Returns whether the slot had this generation all the time.
    ///
    /// # Safety
    ///
    /// The frame is the caller's alone and has room for `len` bytes, no more than a record of the group has.
    pub(super) unsafe fn copy(&self, slot: Slot, generation: u64, frame: Spot, len: usize) -> bool {
        self.copied(slot, generation, |entry, record| {
            // SAFETY: entry and record are inside the mapping; for the frame the caller speaks.
            unsafe {
                copy_racing_cached(entry.add(HEADER_AT), frame.header, HEADER);
                copy_racing_cached(record, frame.record, len);
            }
        })
    }

    /// Lets `look` read entry and record. Returns whether the slot had this generation, an even one, all the time.
    fn copied(&self, slot: Slot, generation: u64, look: impl FnOnce(*const u8, *const u8)) -> bool {
        // SAFETY: both are inside the mapping, which is as long as the shape.
        let (entry, record) = unsafe {
            let base = self.file.as_ptr().cast_const();
            (base.add(self.shape.entry(slot)), base.add(self.shape.record(slot)))
        };
        generation::look(self.word(self.shape.entry(slot)), generation, || look(entry, record))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the head and the entries are inside the mapping, their words aligned and only ever loaded here.
        unsafe { AtomicU64::from_ptr(self.file.as_ptr().add(at).cast()) }
    }
}
