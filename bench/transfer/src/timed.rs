//! How long passes take that are one call each.

use crate::error::BenchError;
use std::time::Instant;

/// Returns the seconds of the median of so many passes, after one that does not count.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
pub(crate) fn timed(passes: usize, mut pass: impl FnMut() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    pass()?;
    let mut seconds = Vec::with_capacity(passes);
    for _ in 0..passes {
        let begin = Instant::now();
        pass()?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}
