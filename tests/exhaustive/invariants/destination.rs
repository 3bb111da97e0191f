//! A destination is used or given back exactly once, and not while a read may still write into it.

use super::Broken;
use crate::action::Seen;
use crate::world::World;

pub(crate) fn check(world: &World) -> Result<(), Broken> {
    for seen in &world.seen {
        match seen {
            Seen::Freed { room: false, .. } => return Err("a destination is freed that is not there".to_owned()),
            Seen::Freed { reading: true, .. } => return Err("a destination is freed under a read".to_owned()),
            Seen::Ended { room: true, .. } => return Err("a fetch is over and keeps its destination".to_owned()),
            Seen::Ended { reading: true, .. } => return Err("a fetch is over and still reads".to_owned()),
            _ => {}
        }
    }
    Ok(())
}
