//! Whoever reads a slice that the progress word has passed, under a live lease, reads what the step wrote. (Once the lease
//! has ended, the word of later steps lets the read through, and it may find anything.)

use super::Broken;
use crate::action::Seen;
use crate::ghost::Ghost;
use crate::owner::bytes_of;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    for seen in &world.seen {
        let Seen::Read { rank, layer, slice, life, gate: Some(step) } = *seen else { continue };
        let live = |ghost: &Ghost| (ghost.rank, ghost.life) == (rank, life) && ghost.ended.is_none();
        if world.ghosts.iter().any(live) && slice != bytes_of(life)[usize::from(layer)] {
            return Err(format!("the word passed layer {layer} of step {step}, which holds {slice}, for rank {rank}"));
        }
    }
    Ok(())
}
