//! The router's one reading of clocks and of randomness. Its cores get both as arguments.

use domain::Time;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::Instant;

/// Monotonic time since the router began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    /// Makes a clock that begins now.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// Returns the time now.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Returns when `time` was or will be, in nanoseconds since the Unix epoch.
    pub(crate) fn unix_ns(&self, time: Time) -> u64 {
        let (now, unix_ns) = (self.now(), telemetry::traces::unix_ns());
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        unix_ns.saturating_sub(ns(now.since(time))).saturating_add(ns(time.since(now)))
    }

    /// Returns `time` as tokio's timers know it.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.began + time.since(Time::ZERO)
    }
}

/// Returns the seconds since the Unix epoch, for `created` fields.
#[expect(clippy::disallowed_methods, reason = "clients are told the time of day; nothing is decided by it")]
pub(crate) fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Returns the nanoseconds since the Unix epoch, for times that are told by the nanosecond.
pub(crate) fn unix_now_ns() -> u64 {
    telemetry::traces::unix_ns()
}

/// Draws ids and seeds: a counter, hashed under a key that the operating system drew.
#[derive(Debug)]
pub(crate) struct Draw {
    key: RandomState,
    base: u64,
    drawn: AtomicU64,
}

impl Draw {
    /// Makes a generator with a fresh key.
    pub(crate) fn new() -> Self {
        let key = RandomState::new();
        Self { base: key.hash_one("ids"), key, drawn: AtomicU64::new(0) }
    }

    /// Returns a random number.
    pub(crate) fn random(&self) -> u64 {
        self.key.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a number that this router never gave before, and that another router is unlikely to give: it counts
    /// from a random start.
    pub(crate) fn unique(&self) -> u64 {
        self.base.wrapping_add(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}
