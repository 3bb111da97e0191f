//! Dies or stands still at a named step, as a test wants it.
//!
//! `FAILPOINT=PLACE:KIND:COUNT:ACTION` arms one step: the process is killed (`kill`, as by SIGKILL) or stopped (`stop`,
//! as by SIGSTOP) when it passes that step for the COUNTth time. Only builds with the feature `failpoints` have it.

use rustix::process::{Signal, getpid, kill_process};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use telemetry::failpoint::{self, FailPoint};

/// The step that is armed.
static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    place: String,
    kind: String,
    count: u64,
    signal: Signal,
    passed: AtomicU64,
}

/// Arms the step that the environment names, if it names one.
///
/// # Panics
///
/// If what it names is no step.
#[expect(clippy::disallowed_methods, reason = "only builds for tests have it, and no setting shall exist for it")]
pub(crate) fn arm() {
    let Ok(text) = std::env::var("FAILPOINT") else { return };
    let [place, kind, count, action] = text.split(':').collect::<Vec<_>>()[..] else {
        panic!("FAILPOINT={text} is not PLACE:KIND:COUNT:ACTION")
    };
    let signal = match action {
        "kill" => Signal::KILL,
        "stop" => Signal::STOP,
        other => panic!("FAILPOINT: there is no action {other}"),
    };
    let count = count.parse().expect("FAILPOINT: COUNT is a number");
    let _ = ARMED.set(Armed { place: place.into(), kind: kind.into(), count, signal, passed: AtomicU64::new(0) });
    failpoint::watch(pass);
}

fn pass(place: FailPoint, kind: &'static str) {
    let here = |armed: &&Armed| armed.place == format!("{place:?}") && armed.kind == kind;
    let Some(armed) = ARMED.get().filter(here) else { return };
    if armed.passed.fetch_add(1, Ordering::Relaxed) + 1 == armed.count {
        let _ = kill_process(getpid(), armed.signal);
    }
}
