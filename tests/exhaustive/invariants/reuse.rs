//! A block is not given to a new use while a lease on it is alive.

use super::Broken;
use crate::action::Seen;
use crate::workers::Workers;
use crate::world::World;
use domain::BlockId;

pub(crate) fn check(world: &World, workers: &Workers) -> Result<(), Broken> {
    for &(worker, seen) in &world.last.seen {
        let Seen::Writes { request, block } = seen else { continue };
        let live = world.ghosts.iter().filter(|ghost| ghost.owner == worker && ghost.ended.is_none());
        let live = live.filter(|ghost| ghost.life == world.view(worker, workers).life);
        let mut others = live.filter(|ghost| ghost.request != request);
        if let Some(ghost) = others.find(|ghost| ghost.blocks.contains(&BlockId(block))) {
            return Err(format!("block {block} is reused under the live {} of {}", ghost.lease, ghost.reader));
        }
    }
    Ok(())
}
