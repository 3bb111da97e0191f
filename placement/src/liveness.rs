//! Signs of life: every worker hears of this router and is heard of, or it is lost.
//!
//! The router says them, and a worker answers, so that idle workers are asked and heard together and nobody is
//! woken for one alone. Answers come from a worker's step loop: one that is alive but stuck falls silent too.

use crate::message::Command;
use crate::workers::Workers;
use domain::session::ToWorker;
use domain::{Time, WorkerId};
use std::time::Duration;

/// Looks at the workers in the time of a heartbeat. A sign of life is said at the last look before it is due, so that
/// an idle worker costs one message each way in that time and not one at every look.
const LOOKS_PER_HEARTBEAT: u32 = 8;

/// Times of a heartbeat without a sign of life after which work goes to others, if there are any.
const HEARTBEATS_MISSED_MAX: u32 = 2;

/// When to look, and what is too long.
#[derive(Debug)]
pub(crate) struct Liveness {
    heartbeat: Duration,
    silence_max: Duration,
    last: Option<Time>,
}

impl Liveness {
    pub(crate) fn new(heartbeat: Duration, silence_max: Duration) -> Self {
        Self { heartbeat, silence_max, last: None }
    }

    /// Returns when the next look is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.last.map(|last| last + self.heartbeat / LOOKS_PER_HEARTBEAT)
    }

    /// Looks at all workers, if it is time to: says a sign of life to whom nothing was said of late, or who said
    /// nothing, and gives those that have been silent for too long.
    pub(crate) fn look(&mut self, now: Time, workers: &mut Workers, out: &mut Vec<Command>) -> Vec<WorkerId> {
        if self.next_deadline().is_some_and(|due| now < due) {
            return Vec::new();
        }
        // Whoever stood still itself does not judge others by that time.
        let pause = self.last.replace(now).map_or(Duration::ZERO, |last| now.since(last));
        let forgiven = if pause > self.silence_max / 2 { pause } else { Duration::ZERO };
        let mut silent = Vec::new();
        for worker in workers.iter_mut() {
            worker.last_heard = worker.last_heard + forgiven;
            worker.silent = now.since(worker.last_heard) >= self.heartbeat * HEARTBEATS_MISSED_MAX;
            if now.since(worker.last_heard) >= self.silence_max {
                silent.push(worker.id);
            } else if now.since(worker.last_sent.min(worker.last_heard))
                >= self.heartbeat / LOOKS_PER_HEARTBEAT * (LOOKS_PER_HEARTBEAT - 1)
            {
                out.push(Command::Send { worker: worker.id, message: ToWorker::Heartbeat });
            }
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Incarnation;
    use domain::session::{PeerAddress, PeerInfo, Role};

    const HEARTBEAT: Duration = Duration::from_millis(800);
    const SILENCE: Duration = Duration::from_millis(3000);
    const MS: Duration = Duration::from_millis(1);

    fn workers() -> Workers {
        let mut workers = Workers::new(1);
        for id in [1, 2] {
            let (name, address) = (String::new(), PeerAddress::default());
            let peer = PeerInfo { id: WorkerId(id), incarnation: Incarnation(1), name, role: Role::Decode, address };
            workers.insert(Time::ZERO, peer, 0);
        }
        workers
    }

    /// Who is asked for a sign of life at every millisecond of a while in which `hear` and `say` tell whether
    /// worker 1 speaks or is spoken to; worker 2 answers when asked. And who was silent in the end.
    fn asked(until: u32, hear: impl Fn(u32) -> bool, say: impl Fn(u32) -> bool) -> (Vec<(u32, u32)>, Vec<WorkerId>) {
        let (mut liveness, mut workers, mut asked) = (Liveness::new(HEARTBEAT, SILENCE), workers(), Vec::new());
        for at in 0..until {
            let now = Time::ZERO + MS * at;
            if let Some(worker) = workers.get_mut(WorkerId(1)) {
                worker.last_heard = if hear(at) { now } else { worker.last_heard };
                worker.last_sent = if say(at) { now } else { worker.last_sent };
            }
            let mut out = Vec::new();
            let silent = liveness.look(now, &mut workers, &mut out);
            if !silent.is_empty() {
                return (asked, silent);
            }
            for command in out {
                let Command::Send { worker: id, message: ToWorker::Heartbeat } = command else { panic!("{command:?}") };
                asked.push((at, id.0));
                let worker = workers.get_mut(id).expect("it is up");
                worker.last_sent = now;
                worker.last_heard = if id == WorkerId(2) { now } else { worker.last_heard };
            }
        }
        (asked, Vec::new())
    }

    #[test]
    fn idle_workers_are_asked_together_and_once_in_the_time_of_a_heartbeat() {
        let (asked, silent) = asked(2000, |at| at % 700 == 1, |_| false);
        assert_eq!((asked, silent), (vec![(700, 1), (700, 2), (1400, 1), (1400, 2)], vec![]));
    }

    #[test]
    fn who_is_talked_to_without_end_and_says_nothing_is_asked_and_then_lost() {
        let (asked, silent) = asked(10_000, |_| false, |_| true);
        assert_eq!(silent, [WorkerId(1)]);
        let first: Vec<u32> = asked.iter().filter(|(_, id)| *id == 1).map(|(at, _)| *at).collect();
        assert_eq!(first, (700..3000).step_by(100).collect::<Vec<_>>(), "at each look since it was due");
    }

    #[test]
    fn who_talks_and_is_talked_to_is_left_alone() {
        let (asked, _) = asked(5000, |_| true, |_| true);
        assert!(asked.iter().all(|&(_, id)| id == 2), "{asked:?}");
    }

    #[test]
    fn whoever_stood_still_judges_nobody_by_it() {
        let (mut liveness, mut workers) = (Liveness::new(HEARTBEAT, SILENCE), workers());
        assert_eq!(liveness.look(Time::ZERO, &mut workers, &mut Vec::new()), []);
        assert_eq!(liveness.look(Time::ZERO + SILENCE * 2, &mut workers, &mut Vec::new()), []);
        // From then on it looks as often as it should.
        let times = (1..=60).map(|step| Time::ZERO + SILENCE * 2 + SILENCE / 40 * step);
        let mut silent = times.map(|now| liveness.look(now, &mut workers, &mut Vec::new())).skip_while(Vec::is_empty);
        assert_eq!(silent.next(), Some(vec![WorkerId(1), WorkerId(2)]));
    }
}
