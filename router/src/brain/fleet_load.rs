//! What the workers of a router have to do, over all of them. Gateways and autoscalers read it; no decision does.

use domain::WorkerId;
use domain::session::{Report, Role};
use std::collections::BTreeMap;
use telemetry::Series;
use telemetry::metrics::{self, Gauge};

/// The sums of what workers reported last. A report costs the same however many workers there are.
pub(super) struct FleetLoad {
    block_tokens: u32,
    by_worker: BTreeMap<WorkerId, Load>,
    sum: Load,
    waiting: Gauge,
    running: Gauge,
    kv_used: Gauge,
    /// Says how many blocks there are.
    kv_info: Option<(u64, Series)>,
}

/// What a worker has to do.
#[derive(Clone, Copy, Default)]
struct Load {
    waiting: u64,
    running: u64,
    /// Blocks of a decode worker.
    blocks: u64,
    /// Those of them that sequences use.
    blocks_used: u64,
}

impl FleetLoad {
    pub(super) fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens,
            by_worker: BTreeMap::new(),
            sum: Load::default(),
            waiting: metrics::fleet_waiting(),
            running: metrics::fleet_running(),
            kv_used: metrics::fleet_kv_used(),
            kv_info: None,
        }
    }

    /// Takes what a worker of this role reports.
    pub(super) fn reported(&mut self, worker: WorkerId, role: Role, report: &Report) {
        let (blocks, available) = match role {
            Role::Decode => (report.blocks_total.into(), u64::from(report.blocks_available)),
            Role::Prefill => (0, 0),
        };
        let blocks_used = u64::saturating_sub(blocks, available);
        let load = Load { waiting: report.waiting.into(), running: report.running.into(), blocks, blocks_used };
        self.replace(worker, Some(load));
    }

    /// Forgets a worker.
    pub(super) fn gone(&mut self, worker: WorkerId) {
        self.replace(worker, None);
    }

    fn replace(&mut self, worker: WorkerId, load: Option<Load>) {
        let before = match load {
            Some(load) => self.by_worker.insert(worker, load),
            None => self.by_worker.remove(&worker),
        };
        let (before, now, sum) = (before.unwrap_or_default(), load.unwrap_or_default(), &mut self.sum);
        sum.waiting = sum.waiting - before.waiting + now.waiting;
        sum.running = sum.running - before.running + now.running;
        sum.blocks = sum.blocks - before.blocks + now.blocks;
        sum.blocks_used = sum.blocks_used - before.blocks_used + now.blocks_used;
    }

    /// Shows the sums, and the requests that wait in the router.
    pub(super) fn show(&mut self, waiting_here: usize) {
        let Load { waiting, running, blocks, blocks_used } = self.sum;
        self.waiting.set((waiting + waiting_here as u64) as f64);
        self.running.set(running as f64);
        self.kv_used.set(blocks_used as f64 / blocks.max(1) as f64);
        if self.kv_info.as_ref().is_none_or(|(shown, _)| *shown != blocks) {
            let info = metrics::fleet_kv_info(self.block_tokens.into(), blocks);
            info.set(1.0);
            self.kv_info = Some((blocks, info));
        }
    }
}
