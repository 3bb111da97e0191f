//! Where the bytes of pieces lie: at their owner, to be sent, and at their reader, where they land.

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
    pub(crate) to: *mut u8,
    pub(crate) len: u32,
    pub(crate) landed: bool,
}

// SAFETY: it is an address; the plan holds its memory, and only the thread that reads the sockets writes there.
unsafe impl Send for Landing {}
// SAFETY: as above.
unsafe impl Sync for Landing {}
