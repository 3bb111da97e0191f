//! The memory of a host tier, for the one worker that writes it. [`shape`](super::shape) says what lies where.

use super::file::SlabFile;
use super::generation;
use super::shape::{CHANGES_AT, HEAD, HEADER_AT, Shape, slot_bytes};
use super::{HostConfig, HostError};
use crate::mover::SLOTS_MIN;
use crate::records::{Record, RecordError, Records, Spot, host};
use domain::KvLayout;
use kv_manager::tiers::{Slot, TierRead, TierWrite};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::{Memory, SealedMemory, Ticket, host_range, prefer_node};

/// Bytes that get their pages at once, a multiple of a page. A move waits at most as long as that takes.
const PAGED_BYTES: usize = 2 << 20;

/// The slab of one worker.
pub(super) struct Slab {
    /// What pins it for devices. Ended before the memory.
    _pins: Option<Box<dyn Send>>,
    memory: Arc<dyn Memory>,
    shape: Shape,
    /// Bytes from its beginning that have pages, or that get them only when they are written.
    paged: usize,
}

impl Slab {
    /// Makes an empty slab with as many slots of each group as it has room for.
    /// It is pinned for the device of the pools, in the background, and near to that.
    pub(super) fn new(config: &HostConfig, layout: &KvLayout, pools: &[Arc<dyn Memory>]) -> Result<Self, HostError> {
        let each = slot_bytes(layout) as u64;
        let slots = config.bytes.saturating_sub(HEAD as u64) / each;
        if slots < SLOTS_MIN {
            let needed = HEAD as u64 + SLOTS_MIN * each;
            return Err(HostError::TooSmall { bytes: config.bytes, slots, each, needed });
        }
        let shape = Shape::new(layout, config.weights, u32::try_from(slots).unwrap_or(u32::MAX));
        let head = shape.head(config.worker.0, config.life.0);
        let copier = pools.iter().find_map(|pool| pool.place().device().map(|device| device.copier.clone()));
        let node = copier.as_ref().and_then(|copier| copier.nearest_node());
        let settle = |memory: &dyn Memory| {
            if let Some(Err(error)) = node.map(|node| prefer_node(memory, node)) {
                tracing::info!(tier = config.name, node, %error, "the tier's memory is not kept near to the card");
            }
        };
        let name = format!("{}-host", config.name);
        let memory: Arc<dyn Memory> = match &config.shared {
            Some(shared) => {
                Arc::new(SlabFile::create(&shared.folder, &config.file_name(), shape.len(), &head, settle)?)
            }
            None => {
                let memory = SealedMemory::new(&name, shape.len())?;
                settle(&memory);
                // SAFETY: the head is inside the memory, which no other code has yet.
                unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), memory.as_ptr(), head.len()) };
                Arc::new(memory)
            }
        };
        let pins = copier.zip(host_range(&memory)).and_then(|(copier, memory)| copier.pin(&name, memory));
        Ok(Self { _pins: pins, memory, shape, paged: 0 })
    }

    /// Makes the kernel find pages for the next part. Otherwise the first record there waits for them, several times as
    /// long as for its copy. Returns `false` if all parts have pages.
    pub(super) fn page(&mut self) -> bool {
        let len = PAGED_BYTES.min(self.memory.len() - self.paged);
        if len == 0 {
            return false;
        }
        // SAFETY: the part is inside the memory, and keeps its bytes.
        let paged = unsafe {
            let part = host(&*self.memory).add(self.paged).cast();
            rustix::mm::madvise(part, len, rustix::mm::Advice::LinuxPopulateWrite)
        };
        // Before Linux 5.14 it is not known, and with too little memory it fails: then pages are found as records come.
        self.paged = if paged.is_ok() { self.paged + len } else { self.memory.len() };
        true
    }

    /// Returns the slots of each group.
    pub(super) fn slots(&self) -> u32 {
        self.shape.slots
    }

    pub(super) fn memory(&self) -> Arc<dyn Memory> {
        self.memory.clone()
    }

    /// Puts a record into its slot. Errors: it does not leave its device; the slot has no record.
    ///
    /// # Safety
    ///
    /// As of [`Records::put`], for the block.
    pub(super) unsafe fn put(&mut self, records: &Records, write: &TierWrite) -> Result<(), RecordError> {
        // SAFETY: the spot is this value's alone; for the block the caller speaks.
        self.change(write.place.slot, |spot| unsafe { records.put(write, spot) })
    }

    /// Puts a record that was lifted into its slot.
    pub(super) fn land(&mut self, records: &Records, slot: Slot, record: &Record) {
        // SAFETY: the spot is this value's alone, and has room for a record of its group.
        self.change(slot, |spot| unsafe { records.land(slot.group, record, spot) });
    }

    /// Changes what is in a slot. The slot is inside the slab, which only this thread writes, through `&mut`.
    fn change<T>(&mut self, slot: Slot, put: impl FnOnce(Spot) -> T) -> T {
        let spot = self.spot(slot);
        let put = generation::change(self.word(self.shape.entry(slot)), || put(spot));
        // After the generation: a reader that sees this word sees the generation as well.
        self.word(CHANGES_AT).fetch_add(1, Ordering::Release);
        put
    }

    /// Begins to decode a record from its slot, if it is the right one. Returns what a copier does for it; `None`: it
    /// is done. Errors: it is not.
    ///
    /// # Safety
    ///
    /// As of [`Records::begin_take`], for the block; and the slot is not written until then.
    pub(super) unsafe fn begin_take(&self, records: &Records, read: &TierRead) -> Result<Option<Ticket>, RecordError> {
        // SAFETY: the slot is inside the slab; for the rest the caller speaks.
        unsafe { records.begin_take(read, self.spot(read.place.slot), Box::new(self.memory.clone())) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the head and the entries are inside the memory, their words aligned and only ever used as atomic
        // numbers.
        unsafe { AtomicU64::from_ptr(host(&*self.memory).add(at).cast()) }
    }

    fn spot(&self, slot: Slot) -> Spot {
        let (entry, record) = (self.shape.entry(slot), self.shape.record(slot));
        let first = host(&*self.memory);
        // SAFETY: both are inside the memory, which was measured out by the shape.
        unsafe { Spot { header: first.add(entry + HEADER_AT), record: first.add(record) } }
    }
}
