//! What `baton admin` does with prefixes.

use clap::Args;
use proto::admin::PIN_MAX;
use std::path::PathBuf;
use std::time::Duration;

/// A prefix, and where something is done with it.
#[derive(Debug, Args)]
pub(crate) struct PrefixArgs {
    /// Request whose prompt is the prefix, in JSON, as for /v1/chat/completions or /v1/completions. It needs no
    /// `model`. `-` is the standard input
    pub(crate) file: PathBuf,
    /// Tenant of the requests that begin with it: that of their key [default: that of requests without a key]
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Only at this worker [default: at all]
    #[arg(long, value_name = "WORKER")]
    pub(crate) worker: Option<String>,
}

/// Why a text is not the duration of a pin.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PinDurationError {
    /// It is no time.
    #[error("a number with s, m, h or d behind it, such as 24h")]
    NoTime,
    /// It is nothing.
    #[error("a pin lasts a second or more")]
    Zero,
    /// It is longer than a pin may last.
    #[error("a pin lasts {}d at most, and can be made again", PIN_MAX.as_secs() / (24 * 3600))]
    TooLong,
}

/// Reads a time such as `24h`. Errors: it is none, or not between a second and what a pin may last.
pub(super) fn pin_duration(text: &str) -> Result<Duration, PinDurationError> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600)];
    let unit = text.chars().last().and_then(|last| units.into_iter().find(|(unit, _)| *unit == last));
    let seconds = unit.and_then(|(unit, seconds)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(seconds));
    match seconds.map(Duration::from_secs) {
        None => Err(PinDurationError::NoTime),
        Some(Duration::ZERO) => Err(PinDurationError::Zero),
        Some(duration) if duration > PIN_MAX => Err(PinDurationError::TooLong),
        Some(duration) => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_lasts_as_long_as_it_says_within_its_bounds() {
        let seconds = |text| pin_duration(text).map(|duration| duration.as_secs());
        assert_eq!(["1s", "2m", "24h", "30d"].map(seconds), [Ok(1), Ok(120), Ok(86_400), Ok(2_592_000)]);
        for wrong in ["", "24", "h", "-1h", "1.5h", "1w", "9999999999999999999h"] {
            assert_eq!(seconds(wrong), Err(PinDurationError::NoTime), "{wrong}");
        }
        assert_eq!((seconds("31d"), seconds("0s")), (Err(PinDurationError::TooLong), Err(PinDurationError::Zero)));
        assert!(PinDurationError::TooLong.to_string().contains("30d at most"));
    }
}
