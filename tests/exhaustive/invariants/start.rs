//! A rank starts only from the bytes that were offered to it, once the life that gave it its lease has answered its
//! release as valid. So a reader, which starts when all of its ranks have, starts from bytes that are right in all parts.

use super::Broken;
use crate::action::Seen;
use crate::owner::bytes_of;
use crate::world::World;
use domain::Incarnation;

/// Attempts are made with the owner's first life only.
const GRANTED_BY: Incarnation = Incarnation(1);

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    for seen in &world.seen {
        let Seen::Started { rank, room } = *seen else { continue };
        let copy = world.ranks[usize::from(rank)].copy;
        let valid = world.ghosts.iter().any(|g| g.rank == rank && g.life == GRANTED_BY && g.was_valid);
        if copy != bytes_of(GRANTED_BY) {
            return Err(format!("rank {rank} starts from {copy:?}, it was offered {:?}", bytes_of(GRANTED_BY)));
        }
        if !valid {
            return Err(format!("rank {rank} starts though its lease was not answered as valid by who gave it"));
        }
        if !room {
            return Err(format!("rank {rank} starts without a destination"));
        }
    }
    Ok(())
}
