//! The limits of one key, as pure arithmetic over time.
//!
//! A limit a minute is a bucket that holds what a minute may take, and fills evenly. A request takes one from the
//! bucket of requests. Tokens are taken as they are known, a prompt's at once and an answer's as it comes, so that
//! bucket may be overdrawn: then the key waits until it holds something again.

use super::file::KeyEntry;
use domain::Time;
use std::time::Duration;

/// The time in which a bucket fills.
const MINUTE: Duration = Duration::from_secs(60);
/// How long a client should wait for one of its own requests to end. When that is cannot be predicted.
const END_WAIT: Duration = Duration::from_secs(1);

/// What a key may take, and what it took.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    requests: Bucket,
    tokens: Bucket,
    concurrent: u32,
    open: u32,
}

/// A limit a minute.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// 0: no limit.
    per_minute: u32,
    level: f64,
    at: Time,
}

/// A limit that a key has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    /// The limit that was reached.
    pub(super) limit: Limit,
    /// Its size.
    pub(super) most: u32,
    /// The time until a request may be taken again.
    pub(super) wait: Duration,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
    /// Requests at once.
    Concurrent,
}

/// A limit a minute as clients are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// What a minute may take.
    pub(super) most: u32,
    /// What may be taken now.
    pub(super) left: u32,
    /// The time until all of it may be taken.
    pub(super) full_in: Duration,
}

impl Meter {
    /// Makes the meter of a key that took nothing yet.
    pub(super) fn new(entry: &KeyEntry, now: Time) -> Self {
        Self {
            requests: Bucket::full(entry.requests_per_minute, now),
            tokens: Bucket::full(entry.tokens_per_minute, now),
            concurrent: entry.concurrent,
            open: 0,
        }
    }

    /// Takes other limits. What was taken stays taken, and is owed a minute at most where a limit is lower now.
    pub(super) fn limit(&mut self, entry: &KeyEntry, now: Time) {
        self.requests.limit(entry.requests_per_minute, now);
        self.tokens.limit(entry.tokens_per_minute, now);
        self.concurrent = entry.concurrent;
    }

    /// Takes a request, which [`Self::end`] ends. Errors: a limit is reached, and nothing is taken.
    pub(super) fn begin(&mut self, now: Time) -> Result<(), Reached> {
        if self.concurrent > 0 && self.open >= self.concurrent {
            return Err(Reached { limit: Limit::Concurrent, most: self.concurrent, wait: END_WAIT });
        }
        self.requests.needs(1.0, now).map_err(|wait| self.requests.reached(Limit::Requests, wait))?;
        self.tokens.needs(f64::MIN_POSITIVE, now).map_err(|wait| self.tokens.reached(Limit::Tokens, wait))?;
        self.requests.level -= 1.0;
        self.open += 1;
        Ok(())
    }

    /// Takes tokens.
    pub(super) fn take(&mut self, tokens: usize) {
        self.tokens.level -= tokens as f64;
    }

    /// Says that a request is over.
    pub(super) fn end(&mut self) {
        self.open -= 1;
    }

    /// Returns what is left of requests and of tokens; `None`: there is no such limit.
    pub(super) fn rates(&mut self, now: Time) -> [Option<Rate>; 2] {
        [self.requests.rate(now), self.tokens.rate(now)]
    }
}

impl Bucket {
    fn full(per_minute: u32, now: Time) -> Self {
        Self { per_minute, level: f64::from(per_minute), at: now }
    }

    /// Takes another limit: what is missing stays missing. Of a lower one no more than a minute brings again: what was
    /// taken rightly before that is no debt.
    fn limit(&mut self, per_minute: u32, now: Time) {
        if self.per_minute == 0 {
            // What was taken without a limit is no debt.
            *self = Self::full(per_minute, now);
            return;
        }
        self.fill(now);
        let is_lower = per_minute < self.per_minute;
        let most = f64::from(per_minute);
        let mut level = self.level + most - f64::from(self.per_minute);
        if is_lower {
            level = level.max(1.0 - most);
        }
        *self = Self { level, ..Self::full(per_minute, now) };
    }

    /// Adds what came in since it was looked at.
    fn fill(&mut self, now: Time) {
        let most = f64::from(self.per_minute);
        let came = most * now.since(self.at).as_secs_f64() / MINUTE.as_secs_f64();
        self.level = (self.level + came).min(most);
        self.at = now;
    }

    /// Checks that it holds as much. Errors: the time until it will.
    fn needs(&mut self, wanted: f64, now: Time) -> Result<(), Duration> {
        self.fill(now);
        if self.per_minute == 0 || self.level >= wanted { Ok(()) } else { Err(self.until(wanted)) }
    }

    /// Returns the time until it holds as much.
    fn until(&self, wanted: f64) -> Duration {
        MINUTE.mul_f64(((wanted - self.level) / f64::from(self.per_minute)).max(0.0))
    }

    fn reached(&self, limit: Limit, wait: Duration) -> Reached {
        Reached { limit, most: self.per_minute, wait }
    }

    fn rate(&mut self, now: Time) -> Option<Rate> {
        self.fill(now);
        let (most, left) = (self.per_minute, self.level.max(0.0) as u32);
        (most > 0).then(|| Rate { most, left, full_in: self.until(f64::from(most)) })
    }
}
