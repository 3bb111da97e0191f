//! What operators ask of a worker, over the session of a router or at the worker's own port.
//!
//! What changes here, routers learn from a report that goes out before the answer: once a router has the answer, it
//! places by the new state.

use super::Machine;
use crate::role::MakeRole;
use crate::sessions::SessionId;
use domain::Time;
use domain::session::{self, FromWorker};
use kv_manager::GroupStats;
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::{
    FlushWorkerResponse, ListLanesResponse, ListTiersResponse, Message, Role, Tier, Worker, WorkerAnswer, WorkerAsk,
    WorkerState,
};

/// What the device is called among the tiers.
const DEVICE: &str = "device";

impl Machine {
    /// Answers what a router asks over its session.
    pub(super) fn on_operator_ask(&mut self, now: Time, session: SessionId, number: u64, ask: &[u8]) {
        let answer = match WorkerAsk::decode(ask) {
            Ok(ask) => self.answer(now, ask),
            Err(error) => refused(format!("what is asked cannot be read: {error}")),
        };
        self.core.tell(session, &FromWorker::OperatorAnswer { number, answer: answer.encode_to_vec() });
    }

    /// Does what an operator asks, and answers.
    pub(super) fn answer(&mut self, now: Time, ask: WorkerAsk) -> WorkerAnswer {
        let body = match ask.body {
            Some(Ask::Drain(drain)) => return self.pause(now, drain),
            Some(Ask::Role(role)) => return self.change_role(now, role),
            Some(Ask::Flush(_)) => Answer::Flushed(FlushWorkerResponse { blocks: self.flush() }),
            Some(Ask::Lanes(_)) => Answer::Lanes(ListLanesResponse { lanes: self.lanes(), silent: Vec::new() }),
            Some(Ask::Tiers(_)) => Answer::Tiers(ListTiersResponse { tiers: self.tiers(), silent: Vec::new() }),
            Some(Ask::Dump(_)) => Answer::Dump(self.dump(now)),
            Some(Ask::State(_)) => Answer::State(self.state()),
            Some(Ask::Prefix(ask)) => return self.answer_prefix(now, &ask),
            None => return refused("this worker does not know what is asked: it is of an older version".to_owned()),
        };
        WorkerAnswer { body: Some(body) }
    }

    /// Takes nothing new from now on, or takes work again.
    fn pause(&mut self, now: Time, drain: bool) -> WorkerAnswer {
        if self.core.draining {
            return refused("the worker is about to end".to_owned());
        }
        if std::mem::replace(&mut self.core.paused, drain) != drain {
            let what =
                if drain { "drains the worker: nothing new is taken" } else { "lets the worker take work again" };
            tracing::info!(worker = self.core.config.name, "an operator {what}");
        }
        self.changed(now)
    }

    /// Takes the work of another role from now on.
    fn change_role(&mut self, now: Time, role: i32) -> WorkerAnswer {
        let role = match Role::try_from(role) {
            Ok(Role::Prefill) => session::Role::Prefill,
            Ok(Role::Decode) => session::Role::Decode,
            Ok(Role::Unspecified) | Err(_) => return refused("a role is prefill or decode".to_owned()),
        };
        let Some(make) = self.make_role else { return refused("this worker keeps its role".to_owned()) };
        if self.core.role != Some(role) {
            tracing::info!(worker = self.core.config.name, ?role, "an operator changes the role");
            self.take_role(role, make);
        }
        self.changed(now)
    }

    fn take_role(&mut self, role: session::Role, make: MakeRole) {
        self.replace_role(make(role));
        self.core.role = Some(role);
    }

    /// Tells routers, and then the operator.
    fn changed(&mut self, now: Time) -> WorkerAnswer {
        self.reports.send_now(&mut self.core, now);
        WorkerAnswer { body: Some(Answer::State(self.state())) }
    }

    /// Drops what is cached on the device and held by nothing, and counts it.
    fn flush(&mut self) -> u64 {
        let kv = &mut self.core.kv;
        let cached = |stats: Vec<GroupStats>| stats.iter().map(|group| u64::from(group.cached)).sum::<u64>();
        let before = cached(kv.stats());
        kv.flush();
        before - cached(kv.stats())
    }

    /// Describes the worker, but for what its process knows: address, model, protocol.
    fn state(&self) -> Worker {
        let core = &self.core;
        let (waiting, waiting_tokens) = core.waiting();
        let fullest = core.kv.stats().into_iter().min_by_key(GroupStats::available);
        let role = match core.role {
            Some(session::Role::Prefill) => Role::Prefill,
            Some(session::Role::Decode) => Role::Decode,
            None => Role::Unspecified,
        };
        let state = match core.is_draining() {
            false => WorkerState::Serving,
            true if core.attempts.is_empty() && core.kv.leases_live() == 0 => WorkerState::Drained,
            true => WorkerState::Draining,
        };
        Worker {
            id: core.config.id.0,
            name: core.config.name.clone(),
            role: role.into(),
            incarnation: core.config.incarnation.0,
            state: state.into(),
            waiting: waiting as u32,
            running: core.scheduler.running_len() as u32,
            running_max: core.config.scheduler.running_max,
            waiting_tokens,
            blocks_available: fullest.as_ref().map_or(0, |group| group.available()),
            blocks_total: fullest.as_ref().map_or(0, |group| group.total),
            context_tokens: self.device.limits().context_max as u32,
            tiers: core.tiers.keys().map(|tier| tier.name().to_owned()).collect(),
            prefill_tokens_per_s: core.rates.prefill_tokens_per_s,
            decode_step_s: core.rates.decode_step_s,
            ..Worker::default()
        }
    }

    fn lanes(&self) -> Vec<proto::admin::Lane> {
        let core = &self.core;
        core.meters.lanes.lanes(&core.config.name, |peer| core.transport.speed(peer))
    }

    /// Describes the device and the tiers below it.
    fn tiers(&self) -> Vec<Tier> {
        let core = &self.core;
        let layout = &core.config.layout;
        let (worker, worker_name) = (core.config.id.0, &core.config.name);
        let mut device =
            Tier { worker, worker_name: worker_name.clone(), tier: DEVICE.to_owned(), open: true, ..Tier::default() };
        for (at, group) in core.kv.stats().into_iter().enumerate() {
            let held = u64::from(group.total - group.free);
            device.bytes += held * layout.record_bytes(at) as u64;
            device.blocks += held;
            device.blocks_max += u64::from(group.total);
            device.hits += group.hits;
            device.misses += group.misses;
            device.evictions += group.evictions;
            device.pinned += u64::from(group.pinned);
        }
        let tiers = core.kv.tier_stats().map(|(tier, stats)| {
            let records = core.kv.tier_records().filter(|&(of, ..)| of == tier);
            let bytes = records.map(|(_, group, records)| records * layout.stored_bytes(usize::from(group.0)));
            Tier {
                worker,
                worker_name: worker_name.clone(),
                tier: tier.name().to_owned(),
                open: core.kv.is_tier_open(tier),
                bytes: bytes.sum::<usize>() as u64,
                blocks: u64::from(stats.held),
                blocks_max: u64::from(stats.total),
                hits: stats.hits,
                misses: stats.misses,
                evictions: stats.evictions,
                pinned: 0,
            }
        });
        std::iter::once(device).chain(tiers).collect()
    }
}

/// Makes the answer to what cannot be done.
fn refused(why: String) -> WorkerAnswer {
    WorkerAnswer { body: Some(Answer::Refused(why)) }
}
