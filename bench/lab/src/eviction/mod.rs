//! How much of what was computed before each policy of eviction still has when it is asked for again, and what it
//! costs: a made-up trace, the real manager, and neither an engine nor a clock that the trace depends on.

pub(crate) mod quotas;
mod trace;

use clap::Args;
use domain::{Choice, Epoch, RequestId, SeqKey, Tenant};
use kv_manager::{Admit, EvictionPolicy, GroupConfig, Grow, KvConfig, KvManager, Quotas, Watermarks};
use std::collections::VecDeque;
use std::error::Error;
use std::time::Instant;
use trace::{BLOCK_TOKENS, Trace, Turn};

/// Blocks of the pool.
const POOL_BLOCKS: u32 = 4096;
/// Sequences that are open at once.
const RUNNING: usize = 8;
/// Tokens of each part beyond its last full block.
const REST_TOKENS: u32 = 5;
/// Conversations that have about the pool's blocks.
const CONVERSATIONS_PER_POOL: usize = 31;
/// Policies, by the names that they have in the configuration.
const POLICIES: [(&str, EvictionPolicy); 3] =
    [("lru", EvictionPolicy::Lru), ("s3-fifo", EvictionPolicy::S3Fifo), ("tree", EvictionPolicy::Tree)];

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Seed of the trace.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prompts that count.
    #[arg(long, default_value_t = 8_000)]
    prompts: usize,
    /// Prompts before those, which fill the pool.
    #[arg(long, default_value_t = 2_000)]
    warmup: usize,
}

/// What a trace is played with.
#[derive(Clone, Copy)]
struct Setting {
    eviction: EvictionPolicy,
    /// Of the pool.
    blocks: u32,
    /// Conversations are theirs in turn. They share nothing.
    tenants: u32,
    quota_percent: u32,
}

/// What became of a trace.
#[derive(Default)]
struct Outcome {
    /// Blocks of prompts, and those that were computed before and those taken from the cache among them.
    prompt: u64,
    known: u64,
    cached: u64,
    /// Sums of the working set, a summand a prompt.
    working_set: u64,
    prompts: u64,
    /// Blocks of prompts and answers.
    blocks: u64,
    /// Those that a quota named to go.
    quota_evictions: u64,
    seconds: f64,
}

impl Outcome {
    fn us_per_prompt(&self) -> f64 {
        self.seconds * 1e6 / self.prompts as f64
    }

    /// Returns the nanoseconds of taking a block, from the cache or not, sealing it and giving it back.
    fn ns_per_block(&self) -> f64 {
        self.seconds * 1e9 / self.blocks as f64
    }
}

/// Measures and prints a table.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    println!(
        "pool of {POOL_BLOCKS} blocks, seed {}, {} prompts after {}",
        options.seed, options.prompts, options.warmup
    );
    println!("| working set | scans | could be had | {} | us a prompt |", POLICIES.map(|(name, _)| name).join(" | "));
    println!("| --- | --- | --- |{} --- |", " --- |".repeat(POLICIES.len()));
    for pools in [1, 2, 4, 8] {
        for scans_percent in [0, 10, 30] {
            let trace = || Trace::new(options.seed, pools * CONVERSATIONS_PER_POOL, scans_percent);
            let outcomes: Vec<Outcome> = POLICIES
                .iter()
                .map(|&(_, eviction)| {
                    let setting = Setting { eviction, blocks: POOL_BLOCKS, tenants: 1, quota_percent: 100 };
                    play(setting, options.warmup, options.prompts, trace())
                })
                .collect::<Result<_, Box<dyn Error>>>()?;
            let Outcome { prompt, known, working_set, prompts, .. } = outcomes[0];
            let percent = |part: u64| format!("{:.1}%", part as f64 / prompt as f64 * 100.0);
            let cells = |cell: &dyn Fn(&Outcome) -> String, between: &str| {
                outcomes.iter().map(cell).collect::<Vec<_>>().join(between)
            };
            println!(
                "| {:.1} pools | {scans_percent}% | {} | {} | {} |",
                working_set as f64 / prompts as f64 / f64::from(POOL_BLOCKS),
                percent(known),
                cells(&|outcome| percent(outcome.cached), " | "),
                cells(&|outcome| format!("{:.0}", outcome.us_per_prompt()), " / "),
            );
        }
    }
    Ok(())
}

/// Runs one setting on one trace.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn play(setting: Setting, warmup: usize, prompts: usize, mut trace: Trace) -> Result<Outcome, Box<dyn Error>> {
    let tenants: Vec<Tenant> = (0..setting.tenants).map(|number| Tenant::named(&number.to_string())).collect();
    let mut kv = KvManager::new(KvConfig {
        block_tokens: BLOCK_TOKENS,
        chunk_tokens: BLOCK_TOKENS,
        groups: vec![GroupConfig { blocks: setting.blocks, reserve_blocks: 0, window: None }],
        eviction: setting.eviction,
        watermarks: Watermarks::default(),
        pinned_percent: 0,
        quotas: Quotas { device_percent: setting.quota_percent, ..Quotas::default() },
        park_after: None,
        answers_max: 1,
        leases_max: 1,
    });
    let mut running = VecDeque::new();
    let mut outcome = Outcome::default();
    for number in 0..warmup + prompts {
        let mut turn = trace.next().ok_or("the trace has an end")?;
        let tenant = tenants[(turn.speaker % u64::from(setting.tenants)) as usize];
        turn.belong_to(tenant);
        let key = SeqKey { request: RequestId(number as u64), epoch: Epoch(1), choice: Choice(0) };
        let began = Instant::now();
        if running.len() == RUNNING {
            running.pop_front().into_iter().for_each(|oldest| kv.close(oldest));
        }
        let cached = serve(&mut kv, key, tenant, &turn, &mut running)?;
        let took = began.elapsed().as_secs_f64();
        running.push_back(key);
        if number < warmup {
            continue;
        }
        outcome.seconds += took;
        outcome.blocks += turn.chain.len() as u64;
        outcome.prompt += u64::from(turn.prompt);
        outcome.known += u64::from(turn.known);
        outcome.cached += u64::from(cached);
        outcome.working_set += trace.working_set();
        outcome.prompts += 1;
    }
    kv.check();
    outcome.quota_evictions = kv.stats()[0].quota_evictions;
    Ok(outcome)
}

/// Opens the sequence, computes prompt and answer, and leaves it open. Blocks of the prompt that were cached.
fn serve(
    kv: &mut KvManager,
    key: SeqKey,
    tenant: Tenant,
    turn: &Turn,
    running: &mut VecDeque<SeqKey>,
) -> Result<u32, Box<dyn Error>> {
    let prompt = turn.prompt * BLOCK_TOKENS + REST_TOKENS;
    let all = turn.chain.len() as u32 * BLOCK_TOKENS + REST_TOKENS;
    let chain = &turn.chain[..turn.prompt as usize];
    loop {
        // With the answer's slots, so that it never waits for room.
        if let Admit::Ready { cached_tokens } = kv.open(key, tenant, chain, prompt, 1) {
            if let Grow::Ready(_) = kv.grow(key, all) {
                kv.written(key, prompt, chain);
                kv.written(key, all, &turn.chain);
                return Ok(cached_tokens / BLOCK_TOKENS);
            }
            kv.close(key);
        }
        let oldest = running.pop_front().ok_or("a prompt is larger than the pool")?;
        kv.close(oldest);
    }
}
