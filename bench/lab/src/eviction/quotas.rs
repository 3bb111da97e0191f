//! What it costs to know the tenant of each block: the trace with tenants that share nothing, without quotas, with
//! quotas that never select a block, and with quotas that do.

use super::trace::Trace;
use super::{CONVERSATIONS_PER_POOL, Outcome, POOL_BLOCKS, Setting, play};
use clap::Args;
use kv_manager::EvictionPolicy;
use std::error::Error;

/// The pool is so many times the one that policies are compared with: room for something of each of 1,000 tenants.
const POOLS: u32 = 16;
/// The conversations that go on have so many pools' blocks.
const WORKING_SET_POOLS: usize = 4;
/// Out of 100 prompts, documents that are never sent again.
const SCANS_PERCENT: u64 = 10;
/// A quota that no tenant reaches unless it is alone.
const NEVER_REACHED_PERCENT: u32 = 99;

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Seed of the trace.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prompts that count.
    #[arg(long, default_value_t = 2_000)]
    prompts: usize,
    /// Prompts before those, which fill the pool.
    #[arg(long, default_value_t = 1_000)]
    warmup: usize,
    /// How many tenants there are.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..), default_values_t = [1, 10, 1000])]
    tenants: Vec<u32>,
    /// This quota alone, in percent of the pool: for counting instructions.
    #[arg(long)]
    quota: Option<u32>,
    /// How often each setting has its turn.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

/// Measures and prints a table.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let blocks = POOL_BLOCKS * POOLS;
    println!("pool of {blocks} blocks, {} prompts after {}", options.prompts, options.warmup);
    println!("| tenants | quota | cached | named by quotas | ns a block, the least of all rounds | beside the first |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for &tenants in &options.tenants {
        let of_all = [100, NEVER_REACHED_PERCENT, (100 / tenants).clamp(1, 50)];
        let quotas = options.quota.map_or(of_all.to_vec(), |quota| vec![quota]);
        let mut best: Vec<Option<Outcome>> = quotas.iter().map(|_| None).collect();
        for place in 0..options.rounds * quotas.len() {
            // In turn, and who begins a round has no advantage of it.
            let at = (place + place / quotas.len()) % quotas.len();
            let setting = Setting { eviction: EvictionPolicy::S3Fifo, blocks, tenants, quota_percent: quotas[at] };
            let conversations = WORKING_SET_POOLS * POOLS as usize * CONVERSATIONS_PER_POOL;
            let trace = Trace::new(options.seed, conversations, SCANS_PERCENT);
            let outcome = play(setting, options.warmup, options.prompts, trace)?;
            // What else the machine does only adds.
            if best[at].as_ref().is_none_or(|best| outcome.seconds < best.seconds) {
                best[at] = Some(outcome);
            }
        }
        let first = best[0].as_ref().map_or(0.0, Outcome::ns_per_block);
        for (quota, outcome) in quotas.iter().zip(best.iter().flatten()) {
            let name = if *quota == 100 { "none".to_owned() } else { format!("{quota}%") };
            println!(
                "| {tenants} | {name} | {:.1}% | {} | {:.0} | {:.3} |",
                outcome.cached as f64 / outcome.prompt as f64 * 100.0,
                outcome.quota_evictions,
                outcome.ns_per_block(),
                outcome.ns_per_block() / first,
            );
        }
    }
    Ok(())
}
