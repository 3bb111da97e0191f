//! Time as the cores see it: an argument.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A reading of this process's monotonic clock, in nanoseconds since the process began (or, in a simulation, since
/// the simulation began). Never crosses a process: only durations do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// The beginning of the process.
    pub const ZERO: Time = Time(0);
    /// Later than every reading.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns the time that passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0 as f64 / 1e9)
    }
}
