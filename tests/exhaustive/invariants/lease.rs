//! A lease is live, then ended, for ever; and it ends by its own release, lapse or withdrawal alone.

use super::Broken;
use crate::workers::Workers;
use crate::world::World;

pub(crate) fn check(world: &World, workers: &Workers) -> Result<(), Broken> {
    for ghost in world.ghosts.iter() {
        let owner = world.view(ghost.owner, workers);
        if owner.life != ghost.life {
            continue;
        }
        let (lease, reader) = (ghost.lease, ghost.reader);
        match (ghost.ended, owner.alive.contains(&lease)) {
            (Some(how), true) => return Err(format!("{lease} of {reader}, which is {how:?}, is alive")),
            (None, false) => return Err(format!("{lease} of {reader} was ended by nobody, and is not alive")),
            _ => {}
        }
    }
    Ok(())
}
