//! What every attempt of a worker waits for, in words.

use super::Machine;
use domain::session::Assignment;
use domain::{SeqKey, Time};
use kv_manager::FetchState;
use proto::admin::{Attempt, Size, WorkerDump};
use scheduler::Kind;

impl Machine {
    /// Describes all that the worker has to do.
    pub(super) fn dump(&self, now: Time) -> WorkerDump {
        let core = &self.core;
        let attempts = core.attempts.iter().map(|(request, epoch, attempt)| {
            let mut keys: Vec<SeqKey> =
                core.sequences.keys().copied().filter(|key| key.request == request && key.epoch == epoch).collect();
            keys.sort_unstable();
            Attempt {
                request: request.to_string(),
                epoch: epoch.0,
                part: part(attempt.submit.assignment),
                waits_for: keys.into_iter().map(|key| self.waits_for(key)).collect(),
                age_ms: now.since(attempt.arrived).as_secs_f64() * 1e3,
            }
        });
        let sizes = core.sizes().into_iter().chain(self.fetches.sizes()).chain(self.offers.sizes());
        let size = |(name, entries): (&str, usize)| Size { name: name.to_owned(), entries: entries as u64 };
        WorkerDump {
            worker: core.config.id.0,
            worker_name: core.config.name.clone(),
            attempts: attempts.collect(),
            sizes: sizes.map(size).collect(),
            in_step: core.in_steps.len() as u32,
            leases: core.kv.leases_live() as u64,
            sessions: core.sessions.len() as u32,
            backlog_bytes: core.backlog() as u64,
        }
    }

    /// Says what a sequence waits for.
    fn waits_for(&self, key: SeqKey) -> String {
        let core = &self.core;
        let Some(sequence) = core.sequences.get(&key) else { return String::new() };
        if sequence.closing {
            return "the end of the step in flight, to be freed".to_owned();
        }
        if let Some(kind) = core.scheduler.waits_for(key) {
            let before = core.scheduler.claim_before(key, |key| core.is_held(key)).tokens;
            return match kind {
                Kind::Compute | Kind::Load => format!("memory for its prompt, behind {before} tokens of others"),
                Kind::Loading { .. } => "its beginning, which a tier loads".to_owned(),
                Kind::TakeOver => format!("memory to be taken over, behind {before} tokens of others"),
            };
        }
        let fetch = self.fetches.progress().find(|fetch| (fetch.request, fetch.epoch) == (key.request, key.epoch));
        match fetch.filter(|_| sequence.fetching).map(|fetch| fetch.state) {
            Some(FetchState::Expecting) => return "the offer of the other worker".to_owned(),
            Some(FetchState::WaitingRoom) => return "memory to be taken over".to_owned(),
            Some(FetchState::Reading) => return "blocks that the other worker computes, or that are read".to_owned(),
            Some(FetchState::Answering) => return "the other worker's word that its copy is valid".to_owned(),
            Some(FetchState::Quiescing | FetchState::Done) => return "reads that are being cancelled".to_owned(),
            None => {}
        }
        if core.is_held(key) {
            "its router, for which too much waits".to_owned()
        } else if core.in_steps.contains(key) {
            "the step in flight".to_owned()
        } else if core.scheduler.contains(key) {
            "the next step".to_owned()
        } else {
            "a prefix that another worker has".to_owned()
        }
    }
}

/// Says what the worker does in an attempt.
fn part(assignment: Assignment) -> String {
    match assignment {
        Assignment::Prefill { decode } => format!("computes the prompt for {decode}"),
        Assignment::Decode { prefill } => format!("takes the prompt over from {prefill}, and decodes"),
        Assignment::TakeOver { from } => format!("takes the running sequence over from {from}"),
        Assignment::Whole => "computes the prompt, and decodes".to_owned(),
    }
}
