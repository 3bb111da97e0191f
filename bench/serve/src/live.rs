//! How a run goes while it goes.

use std::collections::VecDeque;

/// Latest requests from which [`Live::ttft_p50_ms`] is taken.
const LATEST_MAX: usize = 1000;

/// Counts of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Whether these are requests to warm up, which the report does not count.
    pub warming: bool,
    /// Seconds since it began.
    pub elapsed_s: f64,
    /// Requests that succeeded.
    pub done: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were sent and have not ended.
    pub in_flight: u64,
    /// Requests that there will be; `None`: time decides.
    pub requests: Option<u64>,
    /// Events that carried tokens.
    pub events: u64,
    /// Times to the first token of the latest requests, in milliseconds.
    latest_ttft_ms: VecDeque<f64>,
}

impl Live {
    /// Makes the counts of a run of which nothing happened yet.
    pub(crate) fn new(warming: bool, requests: Option<u64>) -> Self {
        Self { warming, requests, ..Self::default() }
    }

    /// Returns the time by which half of the latest 1,000 requests had their first token.
    pub fn ttft_p50_ms(&self) -> Option<f64> {
        let mut latest: Vec<f64> = self.latest_ttft_ms.iter().copied().collect();
        latest.sort_unstable_by(f64::total_cmp);
        (!latest.is_empty()).then(|| crate::summary::quantile(&latest, 0.5))
    }

    /// Notes a time to a first token.
    pub(crate) fn first_token(&mut self, ttft_ms: f64) {
        if self.latest_ttft_ms.len() == LATEST_MAX {
            self.latest_ttft_ms.pop_front();
        }
        self.latest_ttft_ms.push_back(ttft_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_latest() {
        let mut live = Live::default();
        assert_eq!(live.ttft_p50_ms(), None);
        (0..LATEST_MAX).for_each(|_| live.first_token(5.0));
        (0..LATEST_MAX / 2).for_each(|_| live.first_token(1.0));
        assert_eq!(live.ttft_p50_ms(), Some(1.0));
    }
}
