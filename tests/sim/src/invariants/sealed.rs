//! Every block that has an identity holds what the identity stands for: nobody seals torn, foreign or unfinished
//! bytes, and nobody writes into them later.

use crate::event::WorkerIndex;
use crate::world::World;
use domain::{BlockHash, BlockRef, Generation};
use std::collections::BTreeMap;

pub(crate) const NAME: &str = "a sealed block holds what its tokens demand";

/// Blocks of a worker that were compared since they were sealed.
pub(crate) type Checked = BTreeMap<BlockRef, (Generation, BlockHash)>;

/// `deep`: those too that were compared before.
pub(crate) fn check(world: &mut World, w: WorkerIndex, deep: bool) -> Result<(), String> {
    let Some(alive) = &mut world.workers[w].alive else { return Ok(()) };
    for (block, generation, hash) in alive.machine.core().kv.sealed() {
        if !deep && alive.checked.get(&block) == Some(&(generation, hash)) {
            continue;
        }
        let group = usize::from(block.group.0);
        let holds = world.truth.holds(&alive.pools[group], group, block.block.0, hash);
        holds.map_err(|what| format!("{block:?} in {generation} {what}"))?;
        alive.checked.insert(block, (generation, hash));
    }
    Ok(())
}
