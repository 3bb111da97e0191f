//! Limits that a request should keep, and whether it did.

use crate::error::Malformed;
use crate::record::Record;
use serde::Serialize;
use std::str::FromStr;

/// Limits in milliseconds; what is `None` is not limited. Written as `ttft=500ms,tpot=40ms,itl=200ms,e2e=5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slo {
    /// Time to the first token.
    pub ttft_ms: Option<f64>,
    /// Mean time per output token after the first.
    pub tpot_ms: Option<f64>,
    /// The longest gap between two tokens.
    pub itl_ms: Option<f64>,
    /// Time to the end of the answer.
    pub e2e_ms: Option<f64>,
}

impl Slo {
    /// Returns whether a request succeeded within all limits, counted from when it was due.
    pub(crate) fn met_by(&self, record: &Record) -> bool {
        let within = |limit: Option<f64>, ms: Option<f64>| limit.is_none_or(|limit| ms.is_some_and(|ms| ms <= limit));
        // An answer of one token has no gaps to be too long.
        let single = record.gaps_us.is_empty();
        record.failure.is_none()
            && within(self.ttft_ms, record.ttft_ms())
            && (single || within(self.tpot_ms, record.tpot_ms()))
            && (single || within(self.itl_ms, record.longest_gap_ms()))
            && within(self.e2e_ms, Some(record.e2e_ms()))
    }
}

impl FromStr for Slo {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let mut slo = Self::default();
        for part in text.split(',') {
            let (name, limit) = part.split_once('=').unwrap_or((part, ""));
            let place = match name.trim() {
                "ttft" => &mut slo.ttft_ms,
                "tpot" => &mut slo.tpot_ms,
                "itl" => &mut slo.itl_ms,
                "e2e" => &mut slo.e2e_ms,
                other => return Err(Malformed(format!("there is no limit {other:?}: ttft, tpot, itl, e2e"))),
            };
            *place = Some(milliseconds(limit.trim())?);
        }
        Ok(slo)
    }
}

/// Reads `500ms` or `5s`.
fn milliseconds(text: &str) -> Result<f64, Malformed> {
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1.0),
        None => (text.strip_suffix('s').unwrap_or(""), 1000.0),
    };
    let number = digits.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.map(|number| number * unit).ok_or_else(|| Malformed(format!("{text:?} is no time: 500ms or 5s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_their_units() {
        let slo: Slo = "ttft=500ms, itl=50ms,e2e=1.5s".parse().expect("limits");
        assert_eq!(slo, Slo { ttft_ms: Some(500.0), tpot_ms: None, itl_ms: Some(50.0), e2e_ms: Some(1500.0) });
        for text in ["", "ttft", "ttft=5", "ttft=ms", "ttft=-1s", "speed=1s", "ttft=1s,"] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_meets_all_of_them_or_does_not_count() {
        let slo: Slo = "ttft=100ms,tpot=20ms,itl=30ms,e2e=200ms".parse().expect("limits");
        let good = Record {
            due_us: 0,
            first_us: Some(100_000),
            gaps_us: vec![10_000, 30_000],
            end_us: 140_000,
            ..Record::default()
        };
        assert!(slo.met_by(&good));
        let late = Record { first_us: Some(100_001), ..good.clone() };
        let gap = Record { gaps_us: vec![9_999, 30_001], ..good.clone() };
        let slow = Record { gaps_us: vec![20_000, 20_001], end_us: 140_001, ..good.clone() };
        let long = Record { end_us: 200_001, ..good.clone() };
        let failed = Record { failure: Some(crate::Failure::Timeout), ..good.clone() };
        let silent = Record { first_us: None, ..good.clone() };
        for bad in [late, gap, slow, long, failed, silent] {
            assert!(!slo.met_by(&bad), "{bad:?}");
        }
        assert!(slo.met_by(&Record { gaps_us: Vec::new(), end_us: 100_000, ..good }));
    }
}
