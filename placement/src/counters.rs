//! What a placement counts, for metrics and tests.

/// What happened so far, in numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts with a handoff.
    pub handoffs: u64,
    /// Attempts that a decode worker makes alone.
    pub wholes: u64,
    /// Attempts after the first.
    pub replays: u64,
    /// Requests refused.
    pub rejected: u64,
    /// Rows of an earlier attempt, of a request that has ended, or past the end of a choice.
    pub stale_rows: u64,
    /// Rows that were there already.
    pub duplicate_rows: u64,
    /// Rows that had to wait for an earlier one.
    pub early_rows: u64,
    /// Running sequences that another worker took over.
    pub moves: u64,
    /// Workers that were lost because they said nothing.
    pub silences: u64,
    /// Other messages of an earlier attempt, life or request.
    pub stale_messages: u64,
    /// Gaps in reports, each of which led to a snapshot.
    pub report_gaps: u64,
    /// Arrivals with the id of an open request.
    pub repeated_requests: u64,
}

/// How many open requests are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// No decode worker would soon get to them.
    pub waiting: usize,
    /// Their prompt is being computed.
    pub prefilling: usize,
    /// They have their first tokens, and nothing yet from the decode worker that takes over.
    pub handing_off: usize,
    /// Their decode worker makes tokens.
    pub decoding: usize,
}
