//! What the workers of a router have to do, over all of them. Gateways and autoscalers read it; no decision does.

use domain::WorkerId;
use domain::session::{Report, Role};
use std::collections::BTreeMap;
use telemetry::Series;
use telemetry::metrics::{self, Gauge};

/// The sums of what workers reported last. A report costs the same however many workers there are.
pub(super) struct FleetLoad {
    block_tokens: u32,
    by_worker: BTreeMap<WorkerId, (Role, Load)>,
    prefill: Pool,
    decode: Pool,
    waiting: Gauge,
    running: Gauge,
    kv_used: Gauge,
    /// Says how many blocks there are.
    kv_info: Option<(u64, Series)>,
}

/// What a worker has to do, or several.
#[derive(Clone, Copy, Default)]
struct Load {
    waiting: u64,
    waiting_tokens: u64,
    running: u64,
    blocks: u64,
    /// Those of them that sequences use.
    blocks_used: u64,
}

/// The workers of one role.
struct Pool {
    sum: Load,
    waiting: Gauge,
    waiting_tokens: Gauge,
    running: Gauge,
    kv_used: Gauge,
}

impl FleetLoad {
    pub(super) fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens,
            by_worker: BTreeMap::new(),
            prefill: Pool::new(Role::Prefill),
            decode: Pool::new(Role::Decode),
            waiting: metrics::fleet_waiting(),
            running: metrics::fleet_running(),
            kv_used: metrics::fleet_kv_used(),
            kv_info: None,
        }
    }

    /// Takes what a worker of this role reports.
    pub(super) fn reported(&mut self, worker: WorkerId, role: Role, report: &Report) {
        let blocks = u64::from(report.blocks_total);
        let load = Load {
            waiting: report.waiting.into(),
            waiting_tokens: report.waiting_tokens,
            running: report.running.into(),
            blocks,
            blocks_used: blocks.saturating_sub(report.blocks_available.into()),
        };
        self.gone(worker);
        self.by_worker.insert(worker, (role, load));
        self.pool(role).sum.add(load);
    }

    /// Forgets a worker.
    pub(super) fn gone(&mut self, worker: WorkerId) {
        if let Some((role, load)) = self.by_worker.remove(&worker) {
            self.pool(role).sum.subtract(load);
        }
    }

    fn pool(&mut self, role: Role) -> &mut Pool {
        match role {
            Role::Prefill => &mut self.prefill,
            Role::Decode => &mut self.decode,
        }
    }

    /// Shows the sums, and the requests that wait in the router, all of them for a decode worker.
    pub(super) fn show(&mut self, waiting_here: usize) {
        let waiting_here = waiting_here as u64;
        self.prefill.show(0);
        self.decode.show(waiting_here);
        let (prefill, decode) = (self.prefill.sum, self.decode.sum);
        self.waiting.set((prefill.waiting + decode.waiting + waiting_here) as f64);
        self.running.set((prefill.running + decode.running) as f64);
        self.kv_used.set(decode.kv_used());
        if self.kv_info.as_ref().is_none_or(|(shown, _)| *shown != decode.blocks) {
            let info = metrics::fleet_kv_info(self.block_tokens.into(), decode.blocks);
            info.set(1.0);
            self.kv_info = Some((decode.blocks, info));
        }
    }
}

impl Load {
    fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.waiting_tokens += other.waiting_tokens;
        self.running += other.running;
        self.blocks += other.blocks;
        self.blocks_used += other.blocks_used;
    }

    /// Takes back what [`add`](Self::add) added.
    fn subtract(&mut self, other: Self) {
        self.waiting -= other.waiting;
        self.waiting_tokens -= other.waiting_tokens;
        self.running -= other.running;
        self.blocks -= other.blocks;
        self.blocks_used -= other.blocks_used;
    }

    /// Returns the share of the blocks that sequences use; without blocks 0.
    fn kv_used(&self) -> f64 {
        self.blocks_used as f64 / self.blocks.max(1) as f64
    }
}

impl Pool {
    fn new(role: Role) -> Self {
        Self {
            sum: Load::default(),
            waiting: metrics::fleet_pool_waiting(role),
            waiting_tokens: metrics::fleet_pool_waiting_tokens(role),
            running: metrics::fleet_pool_running(role),
            kv_used: metrics::fleet_pool_kv_used(role),
        }
    }

    /// Shows the sums, and so many requests that wait elsewhere for this role.
    fn show(&self, waiting_elsewhere: u64) {
        self.waiting.set((self.sum.waiting + waiting_elsewhere) as f64);
        self.waiting_tokens.set(self.sum.waiting_tokens as f64);
        self.running.set(self.sum.running as f64);
        self.kv_used.set(self.sum.kv_used());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of a worker with so many sequences that wait, each with 10 tokens of its prompt, and one that runs.
    fn report(waiting: u32) -> Report {
        let waiting_tokens = u64::from(waiting) * 10;
        Report { waiting, waiting_tokens, running: 1, blocks_total: 8, blocks_available: 6, ..Report::default() }
    }

    /// Sequences and tokens that wait, sequences that run, and the share of the blocks in use.
    fn sums(pool: &Pool) -> (u64, u64, u64, f64) {
        (pool.sum.waiting, pool.sum.waiting_tokens, pool.sum.running, pool.sum.kv_used())
    }

    #[test]
    fn what_waits_counts_for_the_role_that_its_worker_has_now() {
        let mut fleet = FleetLoad::new(16);
        fleet.reported(WorkerId(1), Role::Prefill, &report(3));
        fleet.reported(WorkerId(2), Role::Decode, &report(1));
        fleet.reported(WorkerId(1), Role::Prefill, &report(5));
        assert_eq!((sums(&fleet.prefill), sums(&fleet.decode)), ((5, 50, 1, 0.25), (1, 10, 1, 0.25)));
        fleet.reported(WorkerId(1), Role::Decode, &report(2));
        assert_eq!((sums(&fleet.prefill), sums(&fleet.decode)), ((0, 0, 0, 0.0), (3, 30, 2, 0.25)));
        fleet.gone(WorkerId(2));
        fleet.gone(WorkerId(1));
        fleet.gone(WorkerId(1));
        assert_eq!((sums(&fleet.prefill), sums(&fleet.decode)), ((0, 0, 0, 0.0), (0, 0, 0, 0.0)));
    }
}
