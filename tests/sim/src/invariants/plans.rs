//! Plans are sound: a device refuses none.

use crate::event::WorkerIndex;
use crate::world::World;

pub(crate) const NAME: &str = "no plan is refused";

pub(crate) fn check(world: &World, w: WorkerIndex) -> Result<(), String> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    alive.shell.notes().refused.take().map_or(Ok(()), Err)
}
