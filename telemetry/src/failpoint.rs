//! Named steps at which a test has a process die or stand still.
//!
//! Here are the steps alone. What happens at one is installed by the binary, and only by a build for tests: no other
//! build has code that ends a process at a step.

use std::sync::OnceLock;

/// Where a process passes messages and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// A message to a peer was sent.
    PeerSent,
    /// A message of a peer arrived and is about to be handled.
    PeerGot,
    /// A message of a session was sent.
    SessionSent,
    /// A message of a session arrived and is about to be handled.
    SessionGot,
    /// A read from a peer: `posted` or `ended`.
    Read,
    /// A step of the engine: `submitted` or `ended`.
    Step,
}

/// What a build for tests does at each step.
static WATCHER: OnceLock<fn(FailPoint, &'static str)> = OnceLock::new();

/// Has `watcher` called at each step. The first one stays.
pub fn watch(watcher: fn(FailPoint, &'static str)) {
    let _ = WATCHER.set(watcher);
}

/// Notes that the process passes a step. In a build for tests, it may die or stand still there.
#[inline]
pub fn pass(place: FailPoint, kind: &'static str) {
    if let Some(watcher) = WATCHER.get() {
        watcher(place, kind);
    }
}
