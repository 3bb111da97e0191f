//! Bugs that tests plant, to prove that they would be found.
//!
//! A core asks [`is`] at the place where a bug would live. Without the feature `planted`, which only the tests of the
//! simulation switch on, the answer is `false` at compile time and nothing of it is left in a binary.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A renewal that comes too late revives a lapsed lease.
    LateRenewalRevives = 1,
    /// Messages are taken from and for any life of a worker.
    NoIncarnationCheck,
    /// The first of two ranks to release ends the lease for both.
    FirstRankReleasesForBoth,
    /// A copy still in flight is offered on.
    OfferCopyInFlight,
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
    /// Identities of blocks do not depend on the tenant.
    TenantsShareIdentities,
    /// Who has its quota goes on taking what is others'.
    QuotaNotKept,
    /// What was lifted for a prompt is freed when that waits no more, though it is read just then.
    LiftFreedWhileRead,
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants a bug in this process, or takes it out again.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u8), std::sync::atomic::Ordering::Relaxed);
}

/// Whether the bug is planted.
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
