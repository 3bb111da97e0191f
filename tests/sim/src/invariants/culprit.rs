//! Of a step that fails as a whole only the sequence fails that made it.

use crate::world::{POISON, World};
use domain::session::{Failure, FromWorker};

pub(crate) const NAME: &str = "only who makes a step fail fails with it";

/// A worker says something to a router.
pub(crate) fn check(world: &World, message: &FromWorker) -> Result<(), String> {
    let FromWorker::Failed { request, epoch, why: Failure::Engine, detail, .. } = message else { return Ok(()) };
    if detail.contains(POISON) && !world.is_poison(*request) {
        return Err(format!("{request} {epoch} fails: {detail}"));
    }
    Ok(())
}
