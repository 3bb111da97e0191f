//! What is said while a directory is away, and how long is waited.

use crate::backoff::Backoff;
use std::fmt;
use std::mem::discriminant;
use std::time::Duration;

/// Why a directory did not do what it was asked.
pub(crate) trait Failure: fmt::Display + Sized {
    /// The directory, as logs name it.
    const DIRECTORY: &'static str;

    /// Returns whether the directory is not there, which shows in several ways.
    fn is_absence(&self) -> bool;

    /// Returns whether the other failure is of the same kind.
    fn is_like(&self, other: &Self) -> bool {
        (self.is_absence() && other.is_absence()) || discriminant(self) == discriminant(other)
    }

    /// Returns whether the next attempt corrects it, as it does in the normal course of things.
    fn is_passing(&self) -> bool;
}

/// Failures since the last success. Each kind is logged once, and so is their end.
#[derive(Debug)]
pub(crate) struct Outage<F> {
    /// What waits meanwhile.
    what: &'static str,
    last: Option<F>,
    backoff: Backoff,
}

impl<F: Failure> Outage<F> {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, last: None, backoff: Backoff::new() }
    }

    /// Notes a failure, and returns how long to wait before the next attempt.
    pub(crate) fn failed(&mut self, error: F) -> Duration {
        let is_known = self.last.as_ref().is_some_and(|last| last.is_like(&error));
        if is_known || error.is_passing() {
            tracing::debug!("{error}");
        } else {
            tracing::warn!("{error}; {} waits", self.what);
        }
        if !error.is_passing() {
            self.last = Some(error);
        }
        self.backoff.pause()
    }

    /// Notes a success.
    pub(crate) fn over(&mut self) {
        if self.last.take().is_some() {
            tracing::info!("{} answers again: {} goes on", F::DIRECTORY, self.what);
        }
        self.backoff.reset();
    }
}
