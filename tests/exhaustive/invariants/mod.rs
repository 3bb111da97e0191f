//! What holds in every state, one invariant per file. Each looks at a state and at what the action before it
//! brought about. What holds in a worker by itself is looked at where that is ([`crate::process`]): its blocks are
//! accounted for, a destination is not given back under a read, what it offers as written is right, and so is what
//! its steps go on from.

mod answer;
mod lease;
pub(crate) mod quiescence;
mod reuse;
mod start;
mod word;

use crate::workers::Workers;
use crate::world::World;

/// What a violated invariant says.
pub(crate) type Broken = String;

/// Checks all but [`quiescence`], which looks ahead.
pub(crate) fn check(world: &World, workers: &Workers) -> Result<(), Broken> {
    world.last.broken.clone().map_or(Ok(()), Err)?;
    reuse::check(world, workers)?;
    lease::check(world, workers)?;
    answer::check(world)?;
    word::check(world)?;
    start::check(world)
}
