//! Bugs that tests plant, to prove that they would be found.
//!
//! A core asks [`is`] at the place where a bug would live. Tests of the simulation and of the device for cards switch
//! the feature `planted` on. Without it the answer is `false` at compile time and nothing of it is left in a binary.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A renewal that comes too late revives a lapsed lease.
    LateRenewalRevives = 1,
    /// Messages are taken from and for any life of a worker.
    NoIncarnationCheck,
    /// The release of the first of two leases that were given for the same ends both.
    FirstReleaseEndsBoth,
    /// A release is answered valid though what it covers is not all written and validated yet.
    ReleaseBeforeWritten,
    /// A block is reused under a live lease.
    ReuseUnderLease,
    /// A release that comes twice is counted twice.
    DuplicateReleaseCounts,
    /// Blocks that a fetch still fills count as held for a newer epoch.
    InFlightCountsAsHeld,
    /// A token frame is taken twice.
    TokenFrameReplayed,
    /// An expected offer is waited for without a deadline.
    ExpectationWithoutDeadline,
    /// A failed step lets the progress word pass its slices.
    FailedStepPassesWord,
    /// A stale epoch's tokens are taken.
    StaleEpochTaken,
    /// The reader starts without waiting for the owner's answer.
    StartBeforeAnswer,
    /// Blocks of a cancelled fetch are freed while its reads still run.
    FreeBeforeQuiesced,
    /// Cached blocks are offered, and their release is answered valid, without a lease that keeps them.
    CachedBlocksUnheld,
    /// Identities of blocks do not depend on the adapter.
    AdaptersShareIdentities,
    /// Identities of blocks do not depend on the tenant.
    TenantsShareIdentities,
    /// A tenant that has its quota goes on taking what belongs to others.
    QuotaNotKept,
    /// What was lifted for a prompt is freed when that waits no more, though it is read just then.
    LiftFreedWhileRead,
    /// A job that came later is admitted first.
    LaterJobFirst,
    /// A sequence that lost its memory waits behind all that never had any.
    PreemptedLast,
    /// What a session does not take at once is dropped.
    DroppedWhenFull,
    /// The youngest sequences get no token while older ones run.
    YoungestStarve,
    /// Room that is kept for a fetch stays kept when that comes to nothing.
    RoomKeptForNobody,
    /// A step that could begin waits for a turn more.
    DeviceIdles,
    /// A reader does not renew its lease.
    LeaseNotRenewed,
    /// After a handoff that failed, a worker that did its part is blamed.
    WrongPeerBlamed,
    /// An attempt is counted for a worker that refused it.
    RefusalCounts,
    /// What an owner misses while it stands still counts against its readers.
    PauseEatsLeases,
    /// A renewal of a lease that is over gets no answer.
    RenewalUnanswered,
    /// All sequences of a step fail with it.
    InnocentsFail,
    /// A handoff takes room that earlier jobs need.
    HandoffFirst,
    /// Of the requests that wait in a router the last one is begun first.
    LastRequestFirst,
    /// A worker answers an operator before it reports what changed.
    AnswerBeforeReport,
    /// A sequence in flight is preempted, so that its blocks are another's while a step still writes them.
    PreemptedInFlight,
    /// Blocks of a sequence that ended are freed while the next step still writes them.
    FreedInFlight,
    /// What a step makes of a sequence that had ended before is told.
    OvershootTold,
    /// What a step makes of a sequence that was closed while it ran counts, as if it were open.
    ClosedRowCounts,
    /// A block is sealed when the step that fills it is planned.
    SealedWhenPlanned,
    /// The step behind one that failed runs.
    SuccessorRuns,
    /// The device is not told which blocks a prompt took over from the cache on its way.
    CaughtUpUntold,
    /// What a directory shows late is taken as if it were new.
    LateSightTaken,
    /// An earlier life of a worker is taken for a later one, if a directory shows it as new.
    EarlierLifeListed,
    /// A worker stays listed that is missing when a directory shows all.
    UnlistedStay,
    /// A device packs a step into the memory of the one before it, which has not ended.
    SlabReusedEarly,
    /// What was copied to a card is said to be there as soon as the copy is queued.
    CopyNotAwaited,
    /// Graphs refer to memory that was freed since they were recorded.
    GraphOutlivesMemory,
    /// The progress word of a card is a layer ahead.
    ProgressAhead,
    /// The end of a step is told before its card has come to it.
    EndToldEarly,
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants a bug in this process, or takes it out again.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u8), std::sync::atomic::Ordering::Relaxed);
}

/// Returns whether the bug is planted.
#[inline(always)]
pub fn is(bug: Bug) -> bool {
    #[cfg(feature = "planted")]
    return PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8;
    #[cfg(not(feature = "planted"))]
    {
        let _ = bug;
        false
    }
}
