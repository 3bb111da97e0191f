//! What holds in every state, one invariant per file. Each looks at a state and at what the action before it brought
//! about.

mod answer;
mod conservation;
mod destination;
mod lease;
mod offer;
pub(crate) mod quiescence;
mod reuse;
mod start;
mod word;

use crate::world::World;
use std::rc::Rc;

/// What a violated invariant says.
pub(crate) type Broken = String;

/// Checks all but [`quiescence`], which looks ahead, of the state `world` that came of `before`.
pub(crate) fn check(before: &World, world: &World) -> Result<(), Broken> {
    offer::check(world)?;
    reuse::check(world)?;
    lease::check(world)?;
    answer::check(world)?;
    word::check(world)?;
    start::check(world)?;
    destination::check(world)?;
    // The dearest last, and only where the owner was touched at all.
    if Rc::ptr_eq(&before.owner, &world.owner) { Ok(()) } else { conservation::check(world) }
}
