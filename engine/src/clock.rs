//! The clock of devices.

use std::time::Instant;

/// Now.
#[expect(
    clippy::disallowed_methods,
    reason = "steps are timed and helpers spin for a time; nothing that is computed depends on it"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
