//! Named steps at which a test has a process die or stand still.
//!
//! With the feature `failpoints`, which only tests build with, `FAILPOINT=PLACE:KIND:COUNT:ACTION` arms one: the
//! process is killed (`kill`, as by SIGKILL) or stopped (`stop`, as by SIGSTOP) when it passes that step for the
//! COUNTth time. Without the feature nothing of it is in the binary.

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

/// Notes that the process passes a step. With the feature `failpoints`, it may die or stand still there.
#[inline(always)]
pub fn pass(place: FailPoint, kind: &'static str) {
    #[cfg(feature = "failpoints")]
    armed::pass(place, kind);
    #[cfg(not(feature = "failpoints"))]
    let _ = (place, kind);
}

#[cfg(feature = "failpoints")]
mod armed {
    use super::FailPoint;
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        place: String,
        kind: String,
        count: u64,
        signal: Signal,
        passed: AtomicU64,
    }

    #[expect(clippy::disallowed_methods, reason = "only builds for tests have it, and no setting shall exist for it")]
    fn armed() -> Option<&'static Armed> {
        static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
        let read = || {
            let text = std::env::var("FAILPOINT").ok()?;
            let [place, kind, count, action] = text.split(':').collect::<Vec<_>>()[..] else {
                panic!("FAILPOINT={text} is not PLACE:KIND:COUNT:ACTION")
            };
            let signal = match action {
                "kill" => Signal::KILL,
                "stop" => Signal::STOP,
                other => panic!("FAILPOINT: there is no action {other}"),
            };
            let count = count.parse().expect("FAILPOINT: COUNT is a number");
            Some(Armed { place: place.into(), kind: kind.into(), count, signal, passed: AtomicU64::new(0) })
        };
        ARMED.get_or_init(read).as_ref()
    }

    pub(super) fn pass(place: FailPoint, kind: &'static str) {
        let Some(armed) = armed().filter(|armed| armed.place == format!("{place:?}") && armed.kind == kind) else {
            return;
        };
        if armed.passed.fetch_add(1, Ordering::Relaxed) + 1 == armed.count {
            let _ = kill_process(getpid(), armed.signal);
        }
    }
}
