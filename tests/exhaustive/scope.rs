//! How much of the world is looked at: who is there, and how often each thing may go wrong.

/// As often as it likes.
pub(crate) const ANY: u8 = u8::MAX;

/// Bounds of a check. Within them everything is tried, in every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Where the owner has the block's bytes from.
    pub(crate) source: Source,
    /// Readers of the one block.
    pub(crate) readers: u8,
    /// Ranks of each reader, with a lease and a fetch of their own.
    pub(crate) ranks: u8,
    /// How often things may go wrong, of all kinds together.
    pub(crate) total: u8,
    /// And of each kind.
    pub(crate) faults: Faults,
}

/// Where the bytes of the block come from that the owner offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// It computes them, and offers them before it does.
    Computed,
    /// It fetches them itself, and offers them when they are validated.
    Fetched,
    /// It has them cached, and offers them to whoever asks; a later life has nothing, and says so.
    Cached,
}

/// How often something may still happen, over all readers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Messages that overtake earlier ones of their rank and direction. [`ANY`]: there is no order.
    pub(crate) reorders: u8,
    /// Messages that are lost.
    pub(crate) losses: u8,
    /// Messages that are delivered and stay in the network all the same.
    pub(crate) duplicates: u8,
    /// Deaths of the owner, which comes back at once as a new life with empty memory.
    pub(crate) owner_crashes: u8,
    /// Deaths of a reader, which comes back as a new life without an attempt.
    pub(crate) reader_crashes: u8,
    /// Steps that fail, in any layer.
    pub(crate) failed_steps: u8,
    /// Timers of ranks that fire: a renewal before the release, a repeated release after it.
    pub(crate) ticks: u8,
    /// Waits of ranks that end.
    pub(crate) timeouts: u8,
    /// Attempts of ranks that the router cancels.
    pub(crate) cancels: u8,
    /// Whether room may come later than it is wanted.
    pub(crate) late_rooms: bool,
}

/// Nothing goes wrong.
pub(crate) const NONE: Faults = Faults {
    reorders: 0,
    losses: 0,
    duplicates: 0,
    owner_crashes: 0,
    reader_crashes: 0,
    failed_steps: 0,
    ticks: 0,
    timeouts: 0,
    cancels: 0,
    late_rooms: false,
};

/// Every kind of fault, once.
pub(crate) const EACH: Faults = Faults {
    reorders: 1,
    losses: 1,
    duplicates: 1,
    owner_crashes: 1,
    reader_crashes: 1,
    failed_steps: 1,
    ticks: 1,
    timeouts: 1,
    cancels: 1,
    late_rooms: false,
};
