//! A release is answered as valid only if the lease was alive and all that it covers was written, and the answer stays
//! the same until it is acknowledged.

use super::Broken;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    match world.answers.iter().find(|(_, valid, right)| valid != right) {
        Some((lease, valid, right)) => {
            Err(format!("the release of lease {lease} is answered valid: {valid}, it should be {right}"))
        }
        None => Ok(()),
    }
}
