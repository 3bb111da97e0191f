//! From every state, once nothing goes wrong any more, everything comes to its end: all fetches and leases are over and
//! every block can be had.

use super::Broken;
use crate::action::Action;
use crate::process::{Event, LAYERS};
use crate::workers::Workers;
use crate::world::World;
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
    pub(crate) fn check(&mut self, world: &World, digest: u64, workers: &mut Workers) -> Result<(), Broken> {
        let mut way = vec![digest];
        let mut world = world.clone();
        while !self.known.contains(way.last().expect("it begins somewhere")) {
            if world.is_quiet(workers) {
                break;
            }
            if way.len() > ACTIONS_MAX {
                return Err(format!("nothing comes to an end in {ACTIONS_MAX} actions"));
            }
            let Some(action) = next(&world, workers) else {
                return Err("nothing can happen any more, and not everything is over".to_owned());
            };
            world.apply(action, workers);
            super::check(&world, workers).map_err(|broken| format!("on the way to the end: {broken}"))?;
            way.push(world.digest());
        }
        self.known.extend(way);
        Ok(())
    }
}

/// What happens next where nothing goes wrong: time passes only where nothing else can happen.
fn next(world: &World, workers: &mut Workers) -> Option<Action> {
    if !world.network.is_empty() {
        return Some(Action::Deliver(0));
    }
    if !world.told.is_empty() {
        return Some(Action::Told(0));
    }
    for worker in world.scope.workers() {
        if world.wants_turn(worker, workers) {
            return Some(Action::At(worker, Event::Turn));
        }
        let view = world.view(worker, workers);
        for (number, read) in (0..).zip(&view.reads) {
            if read.cancelled {
                return Some(Action::At(worker, Event::Quiesces(number)));
            }
            if world.can_read(read, workers) {
                return Some(Action::Read(worker, number));
            }
        }
        match view.running {
            Some(LAYERS) => return Some(Action::At(worker, Event::StepEnds)),
            Some(_) => return Some(Action::At(worker, Event::WriteLayer)),
            None => {}
        }
    }
    let mut all = world.scope.workers();
    if let Some(worker) = all.find(|&worker| world.view(worker, workers).timed) {
        return Some(Action::At(worker, Event::TimeOut));
    }
    let mut all = world.scope.workers();
    all.find(|&worker| world.view(worker, workers).lapses).map(|worker| Action::At(worker, Event::Lapse))
}
