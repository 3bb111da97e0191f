//! A block is not given to a new use while a lease on it is alive.

use super::Broken;
use crate::action::Seen;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    if !world.seen.contains(&Seen::Reused) {
        return Ok(());
    }
    match world.ghosts.iter().find(|ghost| ghost.ended.is_none()) {
        Some(ghost) => Err(format!("the block is reused under the live lease {} of rank {}", ghost.lease, ghost.rank)),
        None => Ok(()),
    }
}
