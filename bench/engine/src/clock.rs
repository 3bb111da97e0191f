//! The clock of measurements.

use std::time::Instant;

/// Returns the time now.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
