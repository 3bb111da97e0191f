//! The one place where a worker reads a clock.

use domain::Time;
use std::time::Instant;

/// The monotonic clock as [`Time`]. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that reads zero now.
    #[expect(clippy::disallowed_methods, reason = "shells read the clock here and hand it to the cores")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the reading.
    #[expect(clippy::disallowed_methods, reason = "shells read the clock here and hand it to the cores")]
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
