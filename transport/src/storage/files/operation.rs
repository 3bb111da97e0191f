//! One read or write of a file.

use super::stripes::FileRange;
use crate::regions::RegionId;
use std::io;

/// One read or write. What `memory` points to is lent to it until it has ended: the transfer that it is part of
/// ends after it, and keeps the region mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) range: FileRange,
    pub(super) memory: *mut u8,
    pub(super) region: RegionId,
    pub(super) region_offset: u64,
    pub(super) write: bool,
    /// How often the system put it off.
    pub(super) repeats: u32,
}

impl Operation {
    /// The first `moved` bytes are done.
    pub(super) fn advance(&mut self, moved: usize) {
        self.range.offset += moved as u64;
        self.range.len -= moved;
        self.memory = self.memory.wrapping_add(moved);
        self.region_offset += moved as u64;
    }
}

// SAFETY: it is an address; see above who may use it.
unsafe impl Send for Operation {}

/// An operation that ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) slot: usize,
    /// Bytes that were read or written.
    pub(super) result: io::Result<usize>,
}
