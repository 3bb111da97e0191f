//! Reports to the router: what placement predicts with.

use crate::config::REPORT_EVERY;
use crate::core::Core;
use domain::session::{FromWorker, Report};
use domain::{BlockHash, Time};

/// Says when a report is due, and numbers them.
#[derive(Default)]
pub(crate) struct Reports {
    number: u64,
    last: Option<Time>,
    /// What the last one said, its number and changes aside.
    said: Report,
    snapshot_wanted: bool,
    wanted: bool,
}

impl Reports {
    /// The next report shall be sent even if it says nothing new: work arrived, and until a report comes the router
    /// counts that work as waiting here.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// Whether a report is due as soon as it may be sent.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted || self.snapshot_wanted
    }

    /// The next report shall hold everything.
    pub(crate) fn want_snapshot(&mut self) {
        self.snapshot_wanted = true;
    }

    /// Sends a report if one is due: at most every [`REPORT_EVERY`], and only if something changed.
    pub(crate) fn send(&mut self, core: &mut Core, now: Time) {
        if self.last.is_some_and(|last| now.since(last) < REPORT_EVERY) {
            return;
        }
        let first = self.last.is_none();
        self.last = Some(now);
        let (mut added, mut removed) = core.kv.take_index_changes();
        let state = state(core);
        let snapshot = first || std::mem::take(&mut self.snapshot_wanted);
        let wanted = std::mem::take(&mut self.wanted);
        if !snapshot && !wanted && added.is_empty() && removed.is_empty() && state == self.said {
            return;
        }
        if snapshot {
            (added, removed) = (core.kv.indexed(), Vec::<BlockHash>::new());
        }
        self.number += 1;
        self.said = state.clone();
        core.tell(&FromWorker::Report(Report { number: self.number, snapshot, added, removed, ..state }));
    }
}

fn state(core: &Core) -> Report {
    let fullest = core.kv.stats().into_iter().min_by_key(kv_manager::GroupStats::available);
    Report {
        incarnation: core.config.incarnation,
        waiting: core.scheduler.waiting_len() as u32,
        waiting_tokens: core.scheduler.waiting_tokens(),
        running: core.scheduler.running_len() as u32,
        blocks_available: fullest.as_ref().map_or(0, |group| group.available()),
        blocks_total: fullest.as_ref().map_or(0, |group| group.total),
        prefill_tokens_per_s: core.rates.prefill_tokens_per_s,
        decode_step_s: core.rates.decode_step_s,
        fetch_bytes_per_s: core.rates.fetch_bytes_per_s,
        ..Report::default()
    }
}
