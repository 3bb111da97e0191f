//! Memory of a device that another process exports, as it is mapped here.

use crate::device::{DeviceId, DeviceKind};
use std::fmt;

/// Memory of a device that belongs to another process, mapped for a device of this one. It stays mapped as long as the
/// value lives, whatever becomes of its owner. What copies out of it holds the value.
pub struct PeerMemory {
    kind: DeviceKind,
    reader: DeviceId,
    address: u64,
    len: usize,
    _mapping: Box<dyn Send + Sync>,
}

impl PeerMemory {
    /// Takes a mapping, which is undone when it is dropped. `reader`: the device that it was made for.
    ///
    /// # Safety
    /// Until `mapping` is dropped, that device may read `len` bytes from `address` on, at any time. For a reader that
    /// is [`DeviceKind::Guarded`] it is the address of host memory, whose provenance is exposed.
    pub unsafe fn new(
        kind: DeviceKind,
        reader: DeviceId,
        address: u64,
        len: usize,
        mapping: Box<dyn Send + Sync>,
    ) -> Self {
        Self { kind, reader, address, len, _mapping: mapping }
    }

    /// Returns what drives the device that reads it.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Returns the device of this process that reads it.
    pub fn reader(&self) -> DeviceId {
        self.reader
    }

    /// Returns where that device finds the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, reader, address, len, _mapping } = self;
        write!(f, "{len} bytes at {address:#x} for {reader} ({kind})")
    }
}
