//! The sweep: every lane by every cell, beside the machine's limits.

use crate::ends::{Reader, Seen};
use crate::error::HaulError;
use crate::pool::{Pool, clear, is_filled, pool};
use crate::report::{Report, Row};
use crate::settings::{Cell, Over, Place, Settings};
use crate::{latency, stream};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use transport::Memory;

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is measured now.
    pub what: String,
    /// Parts that are done.
    pub done: usize,
    /// All parts.
    pub total: usize,
}

/// Measures reads from `owner`, and the limits of this machine where `limits` says so: they mean nothing beside an owner of
/// another. Errors: [`HaulError`].
pub fn sweep(
    settings: &Settings,
    owner: &Place,
    limits: bool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, HaulError> {
    let cells = settings.cells()?;
    let sizes: BTreeSet<usize> = cells.iter().map(|cell| cell.bytes).collect();
    let total = settings.over.len() * cells.len() + if limits { sizes.len() + 1 } else { 0 };
    let mut done = 0;
    let mut part = |what: String| {
        progress(&Progress { what, done, total });
        done += 1;
    };
    let ours = pool(settings.pool_bytes)?;
    let mut rows = Vec::new();
    if limits {
        let theirs = pool(settings.pool_bytes)?;
        for &bytes in &sizes {
            part(format!("limits, blocks of {bytes}"));
            rows.extend(limit_rows(settings, &theirs, &ours, bytes)?);
        }
    }
    for &over in &settings.over {
        let reader = Reader::connect(over, settings, owner, ours.clone())?;
        for &cell in &cells {
            part(format!("{over}, blocks of {}", cell.bytes));
            rows.push(measure(settings, &reader, over, cell, &ours)?);
        }
    }
    if limits {
        part("latency of one read".to_owned());
        rows.extend(latency::rows(settings)?);
    }
    Ok(Report { version: env!("CARGO_PKG_VERSION"), settings: settings.clone(), rows })
}

/// The row of a cell.
fn measure(settings: &Settings, reader: &Reader, over: Over, cell: Cell, ours: &Pool) -> Result<Row, HaulError> {
    // Prepared once and posted again in every pass, as an engine would that reads the same blocks again.
    let (transfers, preparing) = reader.prepare(cell)?;
    // The first pass touches memory, and may find connections cold.
    reader.pass(&transfers, cell.in_flight, &mut Vec::new())?;
    let (mut seen, mut passes) = (Vec::with_capacity(transfers.len() * settings.passes), Vec::new());
    for _ in 0..settings.passes {
        let pass = compared(ours, || reader.pass(&transfers, cell.in_flight, &mut seen))?;
        passes.push(pass.ok_or_else(|| HaulError::Wrong { over: over.to_string(), bytes: cell.bytes })?);
    }
    passes.sort_unstable();
    let pass = passes[passes.len() / 2].as_secs_f64();
    let blocks = (ours.len() / cell.bytes) as f64;
    let mut row = Row::plain("baton", over.to_string(), cell.bytes, cell.in_flight, pass / blocks);
    row.batch = cell.batch;
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mean = |of: fn(&Seen) -> Duration| us(seen.iter().map(of).sum::<Duration>()) / seen.len() as f64;
    row.prepare_us = Some(us(preparing) / transfers.len() as f64);
    row.post_us = Some(mean(|seen| seen.post));
    row.wire_us = Some(mean(|seen| seen.report.wire));
    row.mean_us = Some(mean(|seen| seen.whole));
    let mut whole: Vec<Duration> = seen.iter().map(|seen| seen.whole).collect();
    whole.sort_unstable();
    let at = |share: f64| us(whole[((whole.len() - 1) as f64 * share).round() as usize]);
    (row.p50_us, row.p99_us) = (Some(at(0.5)), Some(at(0.99)));
    Ok(row)
}

/// A pass over a pool that is cleared before, so that one which moves nothing is noticed, and compared after, both outside of the
/// pass's time. `None`: what is there is not the owner's.
fn compared<T>(ours: &Pool, pass: impl FnOnce() -> Result<T, HaulError>) -> Result<Option<T>, HaulError> {
    clear(ours);
    let passed = pass()?;
    Ok(is_filled(ours).then_some(passed))
}

/// What plain copies on one thread do, between two memories of this process, and a plain stream.
fn limit_rows(settings: &Settings, from: &Pool, to: &Pool, bytes: usize) -> Result<[Row; 2], HaulError> {
    let copy = || {
        for at in (0..from.len()).step_by(bytes) {
            // SAFETY: both memories are as long, apart, and nobody else uses them now.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(at), to.as_ptr().add(at), bytes) };
        }
        std::hint::black_box(to.as_ptr());
        Ok(())
    };
    let blocks = (from.len() / bytes) as f64;
    let row = |peer, lane: &str, seconds: f64| Row::plain(peer, lane.to_owned(), bytes, 1, seconds / blocks);
    Ok([
        row("memcpy", "this process", timed(settings.passes, copy)?),
        row("stream", "loopback", stream::pass(settings.passes, from, to, bytes)?),
    ])
}

/// Seconds of the median of so many passes, after one that does not count.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
pub(crate) fn timed(passes: usize, mut pass: impl FnMut() -> Result<(), HaulError>) -> Result<f64, HaulError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_moves_nothing_is_wrong_whatever_came_before() {
        let (theirs, ours) = (pool(1 << 16).expect("memory"), pool(1 << 16).expect("memory"));
        let copy = || {
            // SAFETY: both memories are as long, apart, and nobody else uses them.
            unsafe { std::ptr::copy_nonoverlapping(theirs.as_ptr(), ours.as_ptr(), ours.len()) };
            Ok(7)
        };
        assert_eq!(compared(&ours, copy).expect("it passes"), Some(7));
        assert_eq!(compared(&ours, || Ok(7)).expect("it passes"), None);
    }
}
