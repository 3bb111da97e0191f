//! Nothing goes on from what was read before the life that gave the lease has answered its release as valid.

use super::Broken;
use crate::action::Seen;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    for &(worker, seen) in &world.last.seen {
        let Seen::Started { request } = seen else { continue };
        let of_it = world.ghosts.iter().filter(|ghost| (ghost.reader, ghost.request) == (worker, request));
        if !of_it.into_iter().any(|ghost| ghost.was_valid) {
            return Err(format!("{worker} starts {request} though its lease was not answered as valid by who gave it"));
        }
    }
    Ok(())
}
