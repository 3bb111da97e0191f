//! A block is free, filling, in use or cached, and the four sum to the pool.

use crate::event::WorkerIndex;
use crate::world::World;

pub(crate) const NAME: &str = "block conservation";

/// `deep`: every block, sequence, lease and index entry is looked at.
pub(crate) fn check(world: &World, w: WorkerIndex, deep: bool) -> Result<(), String> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    let kv = &alive.machine.core().kv;
    if deep {
        kv.check();
    }
    for (group, stats) in kv.stats().into_iter().enumerate() {
        let total = world.scenario.blocks[group];
        if stats.free + stats.filling + stats.in_use + stats.cached != total || stats.total != total {
            return Err(format!("group {group} of {total} blocks: {stats:?}"));
        }
    }
    Ok(())
}
