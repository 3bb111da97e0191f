//! Room that jobs will take.

use std::ops::AddAssign;

/// Room in KV memory that jobs will take which have none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Tokens of all the jobs.
    pub tokens: u64,
    /// How many jobs. Of each, a group with a window has no more at once than its window and a chunk.
    pub jobs: u32,
}

impl Claim {
    /// Returns what one job claims that has no room for `tokens` tokens.
    pub fn of_job(tokens: u64) -> Self {
        Self { tokens, jobs: 1 }
    }

    /// Returns whether no job claims anything.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns this claim and that of one more job.
    #[must_use]
    pub fn with_job(mut self, tokens: u64) -> Self {
        self += Self::of_job(tokens);
        self
    }
}

impl AddAssign for Claim {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.jobs += other.jobs;
    }
}

impl std::iter::Sum for Claim {
    fn sum<I: Iterator<Item = Self>>(claims: I) -> Self {
        claims.fold(Self::default(), |mut sum, claim| {
            sum += claim;
            sum
        })
    }
}
