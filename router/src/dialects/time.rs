//! Times as RFC 3339 writes them.

use engine::text::civil;

const NS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: u64 = 86_400;

/// Returns the time `unix_ns` nanoseconds after the beginning of 1970, in UTC, as RFC 3339 has it.
pub(super) fn rfc3339(unix_ns: u64) -> String {
    let (unix_s, ns) = (unix_ns / NS_PER_S, unix_ns % NS_PER_S);
    let (year, month, day) = civil(unix_s / S_PER_DAY);
    let second = unix_s % S_PER_DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z")
}

/// Returns the same for whole seconds.
pub(super) fn rfc3339_of_seconds(unix_s: u64) -> String {
    rfc3339(unix_s.saturating_mul(NS_PER_S))
}
