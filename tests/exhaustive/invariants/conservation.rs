//! Every block is free, filling, in use or cached, and whoever holds it is known. The manager asserts it in every detail;
//! a panic is a violation.

use super::Broken;
use crate::world::World;
use domain::planted_bugs::{self, Bug};

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    // The manager's own check sees this bug before anything comes of it; here its harm is to be found.
    if !planted_bugs::is(Bug::ReuseUnderLease) {
        world.owner.kv.check();
    }
    let stats = world.owner.kv.stats()[0];
    let sum = stats.free + stats.filling + stats.in_use + stats.cached;
    if sum == stats.total { Ok(()) } else { Err(format!("blocks are not conserved: {stats:?}")) }
}
