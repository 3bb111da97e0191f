//! From every state, once nothing goes wrong any more, everything comes to its end: all fetches and leases are over and
//! every block can be had.

use super::Broken;
use crate::action::Action;
use crate::world::{LAYERS, World};
use std::collections::HashSet;

/// Actions that the longest way to the end may take.
const ACTIONS_MAX: usize = 200;

/// States from which everything is known to come to its end.
#[derive(Default)]
pub(crate) struct Quiescence {
    known: HashSet<u64>,
}

impl Quiescence {
    /// Follows one way without faults to the end, or to a state whose way is known. On the way, too, the other
    /// invariants hold.
    pub(crate) fn check(&mut self, world: &World, digest: u64) -> Result<(), Broken> {
        let mut way = vec![digest];
        let mut world = world.clone();
        while !self.known.contains(way.last().expect("it begins somewhere")) {
            if world.is_quiet() {
                break;
            }
            if way.len() > ACTIONS_MAX {
                return Err(format!("nothing comes to an end in {ACTIONS_MAX} actions"));
            }
            let Some(action) = next(&world) else {
                return Err("nothing can happen any more, and not everything is over".to_owned());
            };
            let before = world.clone();
            world.apply(action);
            super::check(&before, &world).map_err(|broken| format!("on the way to the end: {broken}"))?;
            way.push(world.digest());
        }
        self.known.extend(way);
        Ok(())
    }
}

/// What happens next where nothing goes wrong: time passes only where nothing else can happen.
fn next(world: &World) -> Option<Action> {
    if !world.network.is_empty() {
        return Some(Action::Deliver(0));
    }
    for rank in &world.ranks {
        let number = rank.number;
        if rank.wants_room {
            return Some(Action::GiveRoom(number));
        }
        if rank.reads.is_some_and(|reads| reads.cancelled) {
            return Some(Action::Quiesce(number));
        }
        let readable = (0..LAYERS).find(|&layer| rank.can_read(layer, world.owner.life, world.owner.word));
        if let Some(layer) = readable {
            return Some(Action::ReadSlice(number, layer));
        }
    }
    if world.owner.is_overdue() {
        return Some(Action::OwnerExpires);
    }
    if world.owner.can_go_on() {
        return Some(Action::OwnerGoesOn);
    }
    if let Some(rank) = world.ranks.iter().find(|rank| rank.is_timed()) {
        return Some(Action::TimeOut(rank.number));
    }
    world.owner.kv.next_deadline().map(|_| Action::OwnerClock)
}
