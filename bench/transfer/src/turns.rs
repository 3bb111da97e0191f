//! Transfers that are posted in turn, so many at a time, and what was seen of each.

use crate::error::BenchError;
use crate::report::Row;
use crate::settings::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Transfers, by number.
pub(crate) trait Turns {
    /// Does what comes right before a transfer is posted.
    fn before(&self, _turn: usize) {}

    /// Posts one.
    fn post(&self, turn: usize) -> Result<(), BenchError>;

    /// Waits for its end. The time in which its bytes were copied or came.
    fn wait(&self, turn: usize) -> Result<Duration, BenchError>;

    /// Does what comes right after a transfer ended. Errors: it did not do what it should.
    fn after(&self, _turn: usize) -> Result<(), BenchError> {
        Ok(())
    }
}

/// What was seen of passes over the same transfers.
#[derive(Default)]
pub(crate) struct Passes {
    /// To prepare all of them.
    pub(crate) preparing: Duration,
    pub(crate) transfers: usize,
    /// What each pass took.
    took: Vec<Duration>,
    seen: Vec<Seen>,
}

/// A transfer.
struct Seen {
    /// Inside the call that posts it.
    post: Duration,
    /// From that call until its end was heard of.
    whole: Duration,
    wire: Duration,
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl Passes {
    pub(crate) fn new(preparing: Duration, transfers: usize) -> Self {
        Self { preparing, transfers, ..Self::default() }
    }

    /// Posts each transfer once, `in_flight` of them at a time, of which the oldest is waited for. The pass counts.
    pub(crate) fn pass(&mut self, turns: &impl Turns, in_flight: usize) -> Result<(), BenchError> {
        let mut open: VecDeque<(usize, Instant, Duration)> = VecDeque::with_capacity(in_flight);
        let seen = &mut self.seen;
        let mut end = |(turn, at, post): (usize, Instant, Duration)| {
            let wire = turns.wait(turn)?;
            seen.push(Seen { post, whole: now().duration_since(at), wire });
            turns.after(turn)
        };
        let begin = now();
        for turn in 0..self.transfers {
            if open.len() == in_flight
                && let Some(oldest) = open.pop_front()
            {
                end(oldest)?;
            }
            turns.before(turn);
            let at = now();
            turns.post(turn)?;
            open.push_back((turn, at, now().duration_since(at)));
        }
        open.into_iter().try_for_each(end)?;
        self.took.push(now().duration_since(begin));
        Ok(())
    }

    /// Drops all samples so far.
    pub(crate) fn forget(&mut self) {
        self.took.clear();
        self.seen.clear();
    }

    /// Returns the row of a cell, of passes over so many blocks.
    pub(crate) fn row(mut self, over: String, operation: &'static str, cell: Cell, blocks: usize) -> Row {
        self.took.sort_unstable();
        let pass = self.took[self.took.len() / 2].as_secs_f64();
        let mut row = Row::plain("baton", over, cell.bytes, cell.in_flight, pass / blocks as f64);
        (row.batch, row.operation) = (cell.batch, operation);
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let seen = self.seen;
        let mean = |of: fn(&Seen) -> Duration| us(seen.iter().map(of).sum::<Duration>()) / seen.len() as f64;
        row.prepare_us = Some(us(self.preparing) / self.transfers as f64);
        row.post_us = Some(mean(|seen| seen.post));
        row.wire_us = Some(mean(|seen| seen.wire));
        row.mean_us = Some(mean(|seen| seen.whole));
        let mut whole: Vec<Duration> = seen.iter().map(|seen| seen.whole).collect();
        whole.sort_unstable();
        let at = |share: f64| us(whole[((whole.len() - 1) as f64 * share).round() as usize]);
        (row.p50_us, row.p99_us) = (Some(at(0.5)), Some(at(0.99)));
        row
    }
}
