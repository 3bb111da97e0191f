//! A device does not idle while something could run. After a turn it has a step where a sequence decodes, or where a
//! prompt is in progress that has the blocks of its next chunk. Nothing waits for room of a pool that is all to be had,
//! but what rests. What decodes is in each step, or misses a few after one that failed.

use super::line::Stand;
use crate::event::WorkerIndex;
use crate::process::WorkerLife;
use crate::world::World;
use domain::SeqKey;
use domain::plan::StepPlan;
use std::collections::BTreeMap;

pub(crate) const NAME: &str = "no device idles while something could run";

/// Steps in a row that a decoding sequence was not in.
pub(crate) type Missed = BTreeMap<SeqKey, u32>;

/// A worker had its turn, after which it was seen where its sequences stand ([`super::line`]).
pub(crate) fn check(world: &World, w: WorkerIndex) -> Result<(), String> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    if alive.running.is_some() || alive.tiers_move() {
        return Ok(());
    }
    let core = alive.machine.core();
    // The next chunk of a prompt may need blocks that fell out of a window and that a tier still reads.
    let windowed = world.scenario.layout.groups.iter().map(|group| group.reach().is_some());
    let lacks =
        core.kv.stats().iter().zip(windowed).any(|(stats, windowed)| windowed && stats.cached > stats.evictable);
    let runs = |key: SeqKey, stand: &Stand| core.decodes(key) && !core.is_held(key) || stand.computes(key) && !lacks;
    if let Some((key, _)) = alive.line.iter().find(|&(&key, stand)| runs(key, stand)) {
        return Err(format!("{key} could run, and nothing does"));
    }
    let all_free = core.kv.stats().iter().all(|stats| stats.available() == stats.total);
    match alive.line.iter().find(|(_, stand)| all_free && stand.waits.is_some() && !stand.rests) {
        Some((key, _)) => Err(format!("{key} waits for room, and all of it is to be had")),
        None => Ok(()),
    }
}

/// A step begins.
pub(crate) fn begins(alive: &mut WorkerLife, plan: &StepPlan, running_max: u32) -> Result<(), String> {
    let core = alive.machine.core();
    let mut missed = Missed::new();
    for (request, epoch, attempt) in core.attempts() {
        for &choice in &attempt.live {
            let key = SeqKey { request, epoch, choice };
            if core.decodes(key) && !core.is_held(key) && !plan.spans.iter().any(|span| span.key == key) {
                let before = alive.missed.get(&key).copied().unwrap_or(0);
                missed.insert(key, before + 1);
            }
        }
    }
    alive.missed = missed;
    // After a step that failed, what was in it may be tried in parts, down to one sequence each.
    let longest = 2 * running_max;
    match alive.missed.iter().find(|&(_, &steps)| steps > longest) {
        Some((key, steps)) => Err(format!("{key} decodes, and was in none of the last {steps} steps")),
        None => Ok(()),
    }
}
