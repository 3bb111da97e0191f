//! The clocks of a run: time since it began, and the processor time that it took.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::time::Instant;

/// Time since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Begins now.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Microseconds since it began.
    pub(crate) fn now_us(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }

    /// Returns the moment so many microseconds after it began.
    pub(crate) fn at(&self, us: u64) -> Instant {
        self.0 + Duration::from_micros(us)
    }
}

/// Returns the processor time that this process took since it was started.
pub(crate) fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}
