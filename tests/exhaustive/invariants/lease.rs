//! A lease is live, then ended, for ever; and it ends by its own release, lapse or withdrawal alone.

use super::Broken;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    let owner = &world.owner;
    for ghost in world.ghosts.iter().filter(|ghost| ghost.life == owner.life) {
        let (lease, rank) = (ghost.lease, ghost.rank);
        match (ghost.ended, owner.kv.is_alive(owner.now, lease)) {
            (Some(how), true) => return Err(format!("lease {lease} of rank {rank}, which is {how:?}, is alive")),
            (None, false) => return Err(format!("lease {lease} of rank {rank} was ended by nobody, and is not alive")),
            _ => {}
        }
    }
    Ok(())
}
