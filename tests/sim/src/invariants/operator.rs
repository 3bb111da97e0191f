//! What an operator changes, a router places by once it has the worker's answer.

use crate::event::{RouterIndex, WorkerIndex};
use crate::operators::Duty;
use crate::world::World;
use proto::admin::WorkerAnswer;

pub(crate) const NAME: &str = "a router that has an operator's answer places by it";

/// A router has the answer to what an operator asked of a worker.
pub(crate) fn check(world: &World, r: RouterIndex, w: WorkerIndex, answer: &WorkerAnswer) -> Result<(), String> {
    match (Duty::answered(answer), seen(world, r, w)) {
        (Some(answered), Some(seen)) if answered != seen => {
            Err(format!("w{w} answers router {r} {answered:?}, which places by {seen:?}"))
        }
        _ => Ok(()),
    }
}

/// What a router takes a worker for, if it has a session with it.
pub(crate) fn seen(world: &World, r: RouterIndex, w: WorkerIndex) -> Option<Duty> {
    let views = world.routers[r].alive.as_ref()?.placement.workers();
    let view = views.into_iter().find(|view| view.id == world.workers[w].id)?;
    Some(Duty { role: view.role, drained: view.draining })
}
