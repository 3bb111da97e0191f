//! Anonymous memory: weights and activations.
//!
//! Pages are zero and not there until they are touched. All access is through raw pointers: parts of one mapping are
//! written by several threads. (Memory of KV pools, which others may read, is [`crate::pool`]'s.)

use super::CpuError;
use crate::ops::{ArenaPlan, Axis, Buffer};
use memmap2::{MmapOptions, MmapRaw};
use std::io;

/// Rows of activations begin at multiples of this, in numbers: a kernel may write whole panels, and no two rows share
/// a cache line.
const ROW_ALIGN: usize = super::kernels::PANEL;

/// A mapping.
#[derive(Debug)]
pub(super) struct Memory {
    map: MmapRaw,
}

impl Memory {
    /// `bytes` zero bytes, at least one page, in huge pages where the system has them to give.
    pub(super) fn zeroed(bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(bytes.max(1)).map_anon()?;
        // A hint that an old kernel may refuse; nothing depends on it but speed.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map: map.into() })
    }

    /// The first byte.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
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

    /// The address so many bytes further.
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
    buffers: Vec<Place>,
}

/// A buffer in the arena.
#[derive(Clone, Copy, Debug)]
struct Place {
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
    pub(super) fn new(plan: &ArenaPlan, inputs: usize, sampling: usize) -> Result<Self, CpuError> {
        let mut numbers = 0;
        let buffers = plan
            .shapes()
            .iter()
            .map(|shape| {
                let rows = match shape.axis {
                    Axis::Inputs => inputs,
                    Axis::Sampling => sampling,
                };
                let stride = shape.width.next_multiple_of(ROW_ALIGN);
                let place = Place { offset: numbers, stride, axis: shape.axis };
                numbers += rows * stride;
                place
            })
            .collect();
        let bytes = numbers * size_of::<f32>();
        let memory = Memory::zeroed(bytes).map_err(|source| CpuError::Memory { what: "activations", bytes, source })?;
        Ok(Self { memory, buffers })
    }

    /// The rows of a buffer.
    pub(super) fn rows(&self, buffer: Buffer) -> Rows {
        let Place { offset, stride, axis } = self.buffers[buffer.0];
        // SAFETY: the offset is inside the memory that was made for all buffers.
        Rows { first: unsafe { self.memory.as_ptr().cast::<f32>().add(offset) }, stride, axis }
    }
}
