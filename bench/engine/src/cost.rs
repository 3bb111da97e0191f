//! What operations have to do at least: multiply and add, and read weights and KV once.

use crate::model::Model;
use crate::work::{Cut, Run, Work};
use domain::KvLayout;
use engine::spec::ModelSpec;
use engine::timed::{LinearRole, Operation};
use std::collections::BTreeMap;

/// What an operation, or all of them, cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Multiplications and additions.
    pub(crate) operations: f64,
    /// Bytes of weights, or of KV, that lie in memory.
    pub(crate) bytes: f64,
}

/// The operations of a work that are bound by the machine's limits: linear layers and attention. Others have no
/// entry: their time is told, and what they could do at best is not known here.
pub(crate) type Costs = BTreeMap<Operation, Cost>;

/// Returns what a sample of `work` costs.
pub(crate) fn of(work: Work, cut: Cut, model: &Model, layout: &KvLayout) -> Costs {
    let mut costs = Costs::new();
    let linears = model.linears();
    for step in work.steps(cut) {
        for linear in &linears {
            let rows = step.iter().map(|run| match linear.role {
                LinearRole::Head if run.samples => run.sequences,
                LinearRole::Head => 0,
                _ => run.sequences * run.rows,
            });
            let rows: u32 = rows.sum();
            if rows == 0 {
                continue;
            }
            let cost = costs.entry(Operation::Linear(linear.role)).or_default();
            cost.operations += 2.0 * (linear.inputs * linear.outputs) as f64 * f64::from(rows);
            cost.bytes += linear.bytes as f64;
        }
        for run in step {
            let attention = attention(run, model.spec(), layout);
            let cost = costs.entry(Operation::Attention).or_default();
            cost.operations += attention.operations;
            cost.bytes += attention.bytes;
        }
    }
    costs
}

fn attention(run: Run, spec: &ModelSpec, layout: &KvLayout) -> Cost {
    let mut cost = Cost::default();
    for window in spec.windows() {
        // Keys that a query sees, and the first position that any of them sees.
        let window = window.unwrap_or(u32::MAX);
        let seen: f64 = (run.start..run.start + run.rows).map(|position| f64::from((position + 1).min(window))).sum();
        let first = (run.start + 1).saturating_sub(window);
        let (heads, kv) = (spec.heads * spec.head_dim, 2 * spec.kv_heads * spec.head_dim * layout.dtype.bytes());
        // Two products, each a multiplication and an addition.
        cost.operations += 4.0 * seen * heads as f64;
        cost.bytes += f64::from(run.start + run.rows - first) * kv as f64;
    }
    let sequences = f64::from(run.sequences);
    Cost { operations: cost.operations * sequences, bytes: cost.bytes * sequences }
}
