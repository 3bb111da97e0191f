//! Where the bytes of pieces lie: at their owner, to be sent, and at their reader, where they land.

use kv_memory::PoolRange;

/// Bytes of a region, or of a run that is encoded. Nothing keeps the owner of a region from writing them while
/// they are summed up and sent, and nothing needs to: by the rules of leases it does so only after the reader's
/// lapsed, and the reader, which learns so when it releases, discards what it read. With a checksum, its read
/// fails before that if the bytes changed between being summed up and being sent.
pub(super) struct SendRange {
    pub(super) from: *const u8,
    pub(super) len: usize,
}

// SAFETY: it is an address; `Sending` holds what it points to.
unsafe impl Send for SendRange {}

/// Where a piece goes.
pub(crate) struct Landing {
    pub(crate) to: LandingPlace,
    pub(crate) len: u32,
    pub(crate) landed: bool,
    /// It is here, on its way to memory of a device.
    pub(crate) scatters: bool,
}

/// Where in memory.
#[derive(Clone, Copy)]
pub(crate) enum LandingPlace {
    /// In the host's, at this address.
    Host(*mut u8),
    /// In a region of a device, so many bytes from its beginning. The run that it comes with goes by way of a frame.
    Device(u64),
}

impl Landing {
    /// Its address in host memory. A run that goes elsewhere never comes here.
    pub(super) fn host(&self) -> *mut u8 {
        match self.to {
            LandingPlace::Host(to) => to,
            LandingPlace::Device(_) => unreachable!("what goes to a device lands in a frame"),
        }
    }

    /// Its range in a region of a device. `None`: it is in host memory.
    pub(super) fn range(&self) -> Option<PoolRange> {
        match self.to {
            LandingPlace::Host(_) => None,
            LandingPlace::Device(at) => Some(PoolRange { at, len: self.len as usize }),
        }
    }
}

// SAFETY: it is an address; the plan holds its memory, and only the thread that reads the sockets writes there.
unsafe impl Send for Landing {}
// SAFETY: as above.
unsafe impl Sync for Landing {}
