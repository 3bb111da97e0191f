//! What is said while etcd is away, and how long is waited.

use super::error::EtcdError;
use crate::backoff::Backoff;
use std::mem::discriminant;
use std::time::Duration;

/// Failures since the last success. Each kind is logged once, and so is their end.
#[derive(Debug)]
pub(super) struct Outage {
    /// What waits meanwhile.
    what: &'static str,
    last: Option<EtcdError>,
    backoff: Backoff,
}

impl Outage {
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, last: None, backoff: Backoff::new() }
    }

    /// Notes a failure, and returns how long to wait before the next attempt.
    pub(super) fn failed(&mut self, error: EtcdError) -> Duration {
        let is_known = self.last.as_ref().is_some_and(|last| is_alike(last, &error));
        match &error {
            // The next connection has another one.
            EtcdError::Token | EtcdError::Lapsed => tracing::debug!("{error}"),
            _ if is_known => tracing::debug!("{error}"),
            _ => tracing::warn!("{error}; {} waits", self.what),
        }
        if !matches!(error, EtcdError::Token | EtcdError::Lapsed) {
            self.last = Some(error);
        }
        let mut chance = [0; 4];
        // Without chance, pauses are short.
        let _ = getrandom::fill(&mut chance);
        self.backoff.pause(u32::from_ne_bytes(chance))
    }

    /// Notes a success.
    pub(super) fn over(&mut self) {
        if self.last.take().is_some() {
            tracing::info!("etcd answers again: {} goes on", self.what);
        }
        self.backoff.reset();
    }
}

/// Returns whether two failures are of one kind: an etcd that is not there is so in several ways.
fn is_alike(one: &EtcdError, other: &EtcdError) -> bool {
    let is_absence = |error: &EtcdError| matches!(error, EtcdError::Away { .. } | EtcdError::Ended { .. });
    (is_absence(one) && is_absence(other)) || discriminant(one) == discriminant(other)
}
