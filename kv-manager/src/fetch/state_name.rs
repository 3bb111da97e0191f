//! Where a fetch stands, without what it knows there.

/// Where a fetch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchState {
    /// No offer yet.
    Expecting,
    /// Offered; no room yet.
    WaitingRoom,
    /// Reads run, or wait for the owner to write.
    Reading,
    /// All is read and the lease is being released; the answer is not there.
    Answering,
    /// It ended without a start, and reads are being cancelled.
    Quiescing,
    /// Nothing is left to do.
    Done,
}
