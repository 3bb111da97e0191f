//! What the machines command.

use super::entry::{Entry, FetchKind};
use super::{AttemptId, Fetches};
use crate::state::{QUEUE_FULL, WorkerState};
use domain::handoff::PeerBody;
use domain::session::Failure;
use domain::{Choice, Time, Token};
use kv_manager::{FetchCommand, FetchError, FetchEvent};
use scheduler::{Added, Job, Kind};
use std::collections::VecDeque;
use telemetry::metrics::{self as declared, HandoffResult, PrefixResult};

impl Fetches {
    /// Feeds the machine, does what it says, and notes when it is due next.
    pub(super) fn event(&mut self, core: &mut WorkerState, now: Time, id: AttemptId, event: FetchEvent) {
        if let Some(entry) = self.open.get_mut(&id) {
            entry.cancelled |= matches!(event, FetchEvent::Cancel);
        }
        let mut events = VecDeque::from([event]);
        let mut commands = Vec::new();
        while let Some(event) = events.pop_front() {
            let Some(entry) = self.open.get_mut(&id) else { return };
            entry.machine.handle(now, event, &mut commands);
            for command in commands.drain(..) {
                events.extend(self.obey(core, now, id, command));
            }
        }
        self.note_deadline(id);
    }

    /// Does what the machine says. Returns what it must learn at once, if anything.
    fn obey(&mut self, core: &mut WorkerState, now: Time, id: AttemptId, command: FetchCommand) -> Option<FetchEvent> {
        let entry = self.open.get_mut(&id)?;
        let is_prefix = entry.kind == FetchKind::Prefix;
        match command {
            FetchCommand::WantRoom { tokens } if is_prefix => return Some(entry.prefix_room(core, tokens)),
            FetchCommand::WantRoom { tokens } => return entry.want_room(core, tokens),
            FetchCommand::Inquire => core.send(entry.owner, PeerBody::Expect { request: id.0, epoch: id.1 }),
            FetchCommand::Read(pieces) => return self.read(core, id, pieces),
            FetchCommand::CancelReads => return entry.cancel_reads(core),
            FetchCommand::Send(body) => entry.send(core, body),
            FetchCommand::Start { .. } if is_prefix => entry.prefix_came(core, now),
            FetchCommand::Start { first } => entry.start(core, now, &first),
            FetchCommand::Fail(_) if is_prefix => entry.count(core, PrefixResult::Failed),
            FetchCommand::Fail(error) => entry.fail(core, error),
            FetchCommand::Free => core.kv.close(entry.key),
            FetchCommand::Done if is_prefix => self.prefix_done(core, id),
            FetchCommand::Done => {
                if entry.cancelled {
                    declared::handoffs(entry.lane, HandoffResult::Cancelled).increment(1);
                }
                self.forget(core, id);
            }
        }
        None
    }
}

impl Entry {
    /// Queues for room. Returns an event where there is no place in the queue: the attempt has failed.
    fn want_room(&mut self, core: &mut WorkerState, tokens: u32) -> Option<FetchEvent> {
        // Without its sequence, its attempt is over, which the machine is told next.
        let arrived = core.sequences.get(&self.key)?.arrived;
        let job = Job { key: self.key, kind: Kind::TakeOver, tokens, samples: self.choices, arrived };
        if core.scheduler.add(job) != Added::QueueFull {
            return None;
        }
        core.fail(self.key.request, self.key.epoch, Failure::QueueFull, QUEUE_FULL);
        self.cancelled = true;
        Some(FetchEvent::Cancel)
    }

    /// Cancels what is read. Returns an event where nothing is.
    fn cancel_reads(&mut self, core: &mut WorkerState) -> Option<FetchEvent> {
        self.cancelling = true;
        self.unposted.clear();
        self.transfers.iter().for_each(|&transfer| core.transport.cancel(transfer));
        self.transfers.is_empty().then_some(FetchEvent::Quiesced)
    }

    fn send(&self, core: &mut WorkerState, body: PeerBody) {
        if let PeerBody::Release { lease } = body {
            let (worker, request) = (&core.config.name, self.key.request);
            tracing::trace!(target: "timeline", worker, %request, %lease, "release sent");
        }
        core.send(self.owner, body);
    }

    /// Goes on with a handoff that is validated.
    fn start(&self, core: &mut WorkerState, now: Time, first: &[(Choice, Token)]) {
        declared::handoffs(self.lane, HandoffResult::Taken).increment(1);
        tracing::trace!(target: "timeline", worker = core.config.name, request = %self.key.request, "taken over");
        if let Some(timed) = core.attempts.timed(self.key.request, self.key.epoch) {
            timed.event(now, "taken over");
        }
        if let Some(completed) = self.completed {
            declared::exposed_transfer(self.lane).record(now.since(completed).as_secs_f64());
        }
        core.fetched_prompt(self.key, &self.missing);
        core.start(self.key, first);
    }

    /// Fails the attempt of a handoff.
    fn fail(&self, core: &mut WorkerState, error: FetchError) {
        let result = match error {
            FetchError::TimedOut { .. } | FetchError::Deadline => HandoffResult::TimedOut,
            _ => HandoffResult::Lapsed,
        };
        declared::handoffs(self.lane, result).increment(1);
        let detail = format!("the handoff from worker {} failed: {error}", self.owner);
        core.fail_by(self.fault(error), self.key.request, self.key.epoch, error.failure(), detail);
    }
}
