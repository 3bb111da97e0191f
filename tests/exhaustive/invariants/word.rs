//! Whoever reads a slice under a live lease, as soon as the progress word lets it, reads what the owner's step
//! wrote. (Once the lease has ended, the word of later steps lets the read through, and it may find anything.)

use super::Broken;
use crate::ghost::Ghost;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    let Some((worker, read, slice)) = &world.last.read else { return Ok(()) };
    let of_it = (read.owner, read.life, *worker, read.request);
    let live = |ghost: &Ghost| (ghost.owner, ghost.life, ghost.reader, ghost.request) == of_it && ghost.ended.is_none();
    let expected = read.next().expected;
    if world.ghosts.iter().any(live) && *slice != expected {
        let request = read.request;
        return Err(format!("the word passed a slice of {request}, which holds {slice} in place of {expected}"));
    }
    Ok(())
}
