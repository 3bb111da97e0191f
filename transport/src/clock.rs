//! The one place where the clock is read. What is decided by time takes it as an argument.

use std::time::Instant;

/// Returns the time now.
#[expect(
    clippy::disallowed_methods,
    reason = "transfers are timed, rails are judged, connections that keep silent end, and what failed is tried again"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
