//! Reports to routers: what placement predicts with.

use crate::config::REPORT_EVERY;
use crate::state::WorkerState;
use domain::Time;
use domain::session::{FromWorker, Report};
use kv_manager::IndexChanges;
use kv_manager::tiers::Tier;

/// Numbers the reports and says when one is due. Every router gets every report; one that asked for it, or whose
/// session is new, gets everything that is on the device in place of the changes. What tiers hold all routers are
/// told again then, in the reports that follow: there may be far more of it than a message has room for. A router
/// that lets too much wait gets none for that time, and then everything.
#[derive(Default)]
pub(crate) struct Reports {
    number: u64,
    last: Option<Time>,
    /// What the last one said, its number and changes aside.
    said: Report,
}

impl Reports {
    /// Sends reports now: something changed that an operator, or a submit, is about to meet. A router that lets too
    /// much wait gets one without lists: what follows may be the answer to it.
    pub(crate) fn send_now(&mut self, core: &mut WorkerState, now: Time) {
        self.last = None;
        self.send_to(core, now, true);
    }

    /// Sends reports if they are due: at most every [`REPORT_EVERY`], and only if something changed or is wanted.
    pub(crate) fn send(&mut self, core: &mut WorkerState, now: Time) {
        self.send_to(core, now, false);
    }

    /// Sends a report. `full_too`: routers that let too much wait get one as well.
    fn send_to(&mut self, core: &mut WorkerState, now: Time, full_too: bool) {
        if core.sessions.len() == 0 || self.last.is_some_and(|last| now.since(last) < REPORT_EVERY) {
            return;
        }
        self.last = Some(now);
        let changes = core.kv.take_index_changes();
        let state = state(core);
        let changed = !changes.is_empty() || state != self.said;
        if !changed && !core.sessions.wants_report() {
            return;
        }
        self.number += 1;
        self.said = state.clone();
        let IndexChanges { device: added, host, disk, gone: removed } = changes;
        let mut changes =
            FromWorker::Report(Report { number: self.number, added, host, disk, removed, ..state.clone() });
        let mut all = None;
        for (_, session) in core.sessions.iter_mut() {
            if session.is_full() {
                session.wants_snapshot = true;
                if full_too {
                    let (number, submits) = (self.number, session.submits);
                    session.tell(&FromWorker::Report(Report { number, submits, ..state.clone() }));
                }
                continue;
            }
            session.wants_report = false;
            let message = if std::mem::take(&mut session.wants_snapshot) {
                all.get_or_insert_with(|| {
                    let (number, added) = (self.number, core.kv.indexed());
                    core.kv.tell_tiers_again();
                    FromWorker::Report(Report { number, snapshot: true, added, ..state.clone() })
                })
            } else {
                &mut changes
            };
            if let FromWorker::Report(report) = message {
                report.submits = session.submits;
            }
            session.tell(message);
        }
    }
}

fn state(core: &WorkerState) -> Report {
    let token_bytes = core.config.layout.stored_token_bytes();
    let (waiting, waiting_tokens) = core.waiting();
    let room = core.kv.room();
    Report {
        incarnation: core.config.incarnation,
        role: core.role,
        draining: core.paused,
        waiting: waiting as u32,
        waiting_tokens,
        running: core.scheduler.running_len() as u32,
        running_max: core.config.scheduler.running_max,
        open: core.attempts.live_choices(),
        blocks_wanted: core.blocks_wanted(),
        blocks_available: room.available,
        blocks_total: room.total,
        adapters: core.adapters.clone(),
        prefill_tokens_per_s: core.rates.prefill_tokens_per_s,
        decode_step_s: core.rates.decode_step_s,
        fetch_bytes_per_s: core.rates.fetch_bytes_per_s,
        host_tokens_per_s: core.rates.tokens_per_s(Tier::Host, token_bytes),
        disk_tokens_per_s: core.rates.tokens_per_s(Tier::Disk, token_bytes),
        ..Report::default()
    }
}
