//! Signs of life: every worker hears of this router and is heard of, or it is lost.
//!
//! A worker's heartbeats come from its step loop, so one that is alive but stuck falls silent too.

use crate::message::Command;
use crate::workers::Workers;
use domain::session::ToWorker;
use domain::{Time, WorkerId};
use std::time::Duration;

/// Looks in the time of a heartbeat. A sign of life is said at the last look before it is due, so that an idle worker costs
/// one message in that time and not one at every look.
const LOOKS: u32 = 4;

/// When to look, and what is too long.
#[derive(Debug)]
pub(crate) struct Vigil {
    heartbeat: Duration,
    silence_max: Duration,
    last: Option<Time>,
}

impl Vigil {
    pub(crate) fn new(heartbeat: Duration, silence_max: Duration) -> Self {
        Self { heartbeat, silence_max, last: None }
    }

    /// When the next look is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.last.map(|last| last + self.heartbeat / LOOKS)
    }

    /// Looks at all workers, if it is time to: says a sign of life to whom nothing was said of late, and gives those that
    /// have been silent for too long.
    pub(crate) fn look(&mut self, now: Time, workers: &mut Workers, out: &mut Vec<Command>) -> Vec<WorkerId> {
        if self.due().is_some_and(|due| now < due) {
            return Vec::new();
        }
        // Whoever stood still itself does not judge others by that time.
        let pause = self.last.replace(now).map_or(Duration::ZERO, |last| now.since(last));
        let forgiven = if pause > self.silence_max / 2 { pause } else { Duration::ZERO };
        let mut silent = Vec::new();
        for worker in workers.iter_mut() {
            worker.heard = worker.heard + forgiven;
            if now.since(worker.heard) >= self.silence_max {
                silent.push(worker.id);
            } else if now.since(worker.said) >= self.heartbeat / LOOKS * (LOOKS - 1) {
                out.push(Command::Send { worker: worker.id, message: ToWorker::Heartbeat });
            }
        }
        silent
    }
}
