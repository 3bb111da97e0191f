//! Anonymous memory: weights and activations.
//!
//! Pages are zero and not there until they are touched. All access is through raw pointers: parts of one mapping are
//! written by several threads. (Memory of KV pools, which others may read, is [`crate::pool`]'s.)

use super::error::CpuError;
use crate::ops::{ArenaPlan, Axis, Buffer};
use memmap2::{MmapOptions, MmapRaw};
use std::io;
use std::sync::Arc;

/// Rows of activations begin at multiples of this, in numbers: a kernel may write whole panels, and no two rows share
/// a cache line.
const ROW_ALIGN: usize = super::kernels::PANEL;

/// Huge pages begin at multiples of this.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a slab, but for parts that are larger.
const SLAB_BYTES: usize = 256 << 20;
/// Parts of slabs begin at multiples of this: at cache lines.
const PART_ALIGN: usize = 64;

/// A mapping, or a part of one.
#[derive(Debug)]
pub(super) struct Memory {
    map: Arc<MmapRaw>,
    offset: usize,
}

impl Memory {
    /// `bytes` zero bytes, at least one page. In small pages: what is never used of activations is most of them,
    /// and what is used stays in the caches.
    pub(super) fn zeroed(bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(bytes.max(1)).map_anon()?;
        Ok(Self { map: Arc::new(map.into()), offset: 0 })
    }

    /// Returns the first byte.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.offset)
    }
}

/// Memory of weights, in huge pages where the system has them to give: parts of large mappings, one behind the
/// other. A mapping of its own for each tensor would begin and end within huge pages, which the system then does
/// not give; small tensors would have none at all.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    map: Option<Arc<MmapRaw>>,
    /// Where the next part may begin.
    used: usize,
    /// Bytes of all parts.
    taken: usize,
}

impl Slabs {
    /// `bytes` zero bytes. What a slab has left when a part does not fit is never touched, so that it costs nothing.
    pub(super) fn part(&mut self, bytes: usize) -> io::Result<Memory> {
        if let Some(map) = self.map.as_ref().filter(|map| map.len() - self.used >= bytes) {
            let part = Memory { map: map.clone(), offset: self.used };
            self.taken += bytes;
            self.used = (self.used + bytes).next_multiple_of(PART_ALIGN).min(map.len());
            return Ok(part);
        }
        let slab = Memory::zeroed(bytes.next_multiple_of(HUGE_PAGE).max(SLAB_BYTES) + HUGE_PAGE)?;
        // A hint that an old kernel may refuse; nothing depends on it but speed.
        #[cfg(target_os = "linux")]
        let _ = slab.map.advise(memmap2::Advice::HugePage);
        self.used = slab.as_ptr().align_offset(HUGE_PAGE);
        self.map = Some(slab.map);
        self.part(bytes)
    }
}

impl Slabs {
    /// Returns the bytes of all parts.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }
}

/// An address that threads may share.
#[derive(Clone, Copy)]
pub(super) struct Address(*mut u8);

// SAFETY: it is an address; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    pub(super) fn new(address: *mut u8) -> Self {
        Self(address)
    }

    /// Returns the address so many bytes further.
    ///
    /// # Safety
    /// It is in, or at the end of, what this address was made of.
    pub(super) unsafe fn add(self, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { self.0.add(bytes) }
    }
}

/// The activations of one device.
#[derive(Debug)]
pub(super) struct Arena {
    memory: Memory,
    buffers: Vec<BufferExtent>,
}

/// A buffer in the arena.
#[derive(Clone, Copy, Debug)]
struct BufferExtent {
    /// In numbers.
    offset: usize,
    stride: usize,
    axis: Axis,
}

/// Rows of f32 in the arena.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// The first row.
    first: *mut f32,
    /// Numbers from one row to the next.
    pub(super) stride: usize,
    /// What the rows stand for.
    pub(super) axis: Axis,
}

// SAFETY: it is an address; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// Row `index`, `stride` numbers.
    ///
    /// # Safety
    /// The index is below the limit that the arena was made for.
    pub(super) unsafe fn row(&self, index: usize) -> *mut f32 {
        // SAFETY: as the caller says.
        unsafe { self.first.add(index * self.stride) }
    }
}

impl Arena {
    /// Memory for the buffers of `plan`, for so many rows of each axis.
    pub(super) fn new(plan: &ArenaPlan, rows: impl Fn(Axis) -> usize) -> Result<Self, CpuError> {
        let mut numbers = 0;
        let buffers = plan
            .shapes()
            .iter()
            .map(|shape| {
                let stride = shape.width.next_multiple_of(ROW_ALIGN);
                let extent = BufferExtent { offset: numbers, stride, axis: shape.axis };
                numbers += rows(shape.axis) * stride;
                extent
            })
            .collect();
        let bytes = numbers * size_of::<f32>();
        let memory = Memory::zeroed(bytes).map_err(|source| CpuError::Memory { what: "activations", bytes, source })?;
        Ok(Self { memory, buffers })
    }

    /// Returns the rows of a buffer; of one of input rows, those from `first` on.
    pub(super) fn rows(&self, buffer: Buffer, first: usize) -> Rows {
        let BufferExtent { offset, stride, axis } = self.buffers[buffer.0];
        let skipped = if axis == Axis::Inputs { first * stride } else { 0 };
        // SAFETY: the offset is inside the memory that was made for all buffers, and so is the row.
        Rows { first: unsafe { self.memory.as_ptr().cast::<f32>().add(offset + skipped) }, stride, axis }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zero_aligned_and_apart() {
        let mut slabs = Slabs::default();
        let sizes = [1, 64, 4096, SLAB_BYTES - 8192, 100, 3 * SLAB_BYTES / 2, 70, 0];
        let parts: Vec<_> = sizes.iter().map(|&bytes| (slabs.part(bytes).unwrap(), bytes)).collect();
        for (index, (part, bytes)) in parts.iter().enumerate() {
            let begin = part.as_ptr() as usize;
            assert!(begin.is_multiple_of(PART_ALIGN));
            assert!(begin - part.map.as_mut_ptr() as usize + bytes <= part.map.len());
            for (other, other_bytes) in &parts[..index] {
                let other = other.as_ptr() as usize;
                assert!(begin + bytes <= other || other + other_bytes <= begin);
            }
            let ends = [0, bytes / 2, bytes.saturating_sub(1)].into_iter().filter(|at| at < bytes);
            // SAFETY: the bytes are in the part, which is ours.
            ends.clone().for_each(|at| assert_eq!(unsafe { part.as_ptr().add(at).read() }, 0));
            // SAFETY: as above.
            ends.for_each(|at| unsafe { part.as_ptr().add(at).write(1) });
        }
    }
}
