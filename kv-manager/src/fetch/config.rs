//! Settings of a fetch, and how often it repeats what it says.

use std::time::Duration;

/// Renewals in a lease's duration: one may be lost, and one late, and the lease still lives.
const RENEWALS_PER_LEASE: u32 = 3;
/// Questions to an owner in the longest wait for its offer: two may be lost.
const INQUIRIES_PER_WAIT: u32 = 3;
/// No two renewals, and no two releases, are sent closer together than this, whatever an offer or a setting says.
const REPEAT_MIN: Duration = Duration::from_millis(1);

/// Settings of a [`Fetch`](super::Fetch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchConfig {
    /// Fingerprint of the reader's layout; an offer with another is refused.
    pub layout: u64,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Longest wait for the offer, or for the next word that the prompt is still queued; for room; and, while
    /// reading, for the next sign that the owner or the reads go on.
    pub wait_max: Duration,
    /// Longest wait for the answer to the release, or to an ask.
    pub answer_max: Duration,
    /// Time between repeated releases.
    pub release_retry: Duration,
}

impl FetchConfig {
    /// Returns how often an owner is asked whether it still has the prompt.
    pub(super) fn inquiry_interval(&self) -> Duration {
        (self.wait_max / INQUIRIES_PER_WAIT).max(REPEAT_MIN)
    }

    /// Returns how often a release is sent until it is answered.
    pub(super) fn release_interval(&self) -> Duration {
        self.release_retry.max(REPEAT_MIN)
    }
}

/// Returns how often a lease of this duration is renewed.
pub(super) fn renewal_interval(lease: Duration) -> Duration {
    (lease / RENEWALS_PER_LEASE).max(REPEAT_MIN)
}
