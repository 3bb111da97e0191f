//! Only what the owner computes itself or has validated is offered, never a copy still in flight.

use super::Broken;
use crate::action::Seen;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    for seen in &world.seen {
        if let Seen::Granted { lease, rank, in_flight: true, .. } = seen {
            return Err(format!("lease {lease} of rank {rank} is on a copy that is still in flight"));
        }
    }
    Ok(())
}
