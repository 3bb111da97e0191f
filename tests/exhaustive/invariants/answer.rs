//! A release is answered as valid only if the lease was alive and all that it covers was written, and the answer
//! stays the same until it is acknowledged. Whoever renews a lease that is over is told so, unless its release was
//! answered as valid.

use super::Broken;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    if let Some((lease, valid, right)) = world.last.answers.iter().find(|(_, valid, right)| *valid != Some(*right)) {
        return Err(format!("the release of {lease} is answered valid: {valid:?}, it should be {right}"));
    }
    match world.last.renewals.iter().find(|(_, told, right)| told != right) {
        Some((lease, true, _)) => Err(format!("the renewal of {lease} is refused")),
        Some((lease, false, _)) => Err(format!("the renewal of {lease}, which is over, is not answered")),
        None => Ok(()),
    }
}
