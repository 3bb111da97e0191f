//! Who waits in a router is not overtaken: it is begun before all that came later, unless it is too long for the
//! worker that these go to.

use crate::event::WorkerIndex;
use crate::world::World;
use domain::session::{Assignment, Submit};

pub(crate) const NAME: &str = "who waits in a router begins before who came later";

/// A router gives an attempt to a worker.
pub(crate) fn check(world: &World, w: WorkerIndex, submit: &Submit) -> Result<(), String> {
    let decodes = matches!(submit.assignment, Assignment::Whole | Assignment::Decode { .. });
    let Some(new) = world.clients.get(&submit.request).filter(|new| decodes && new.epoch.0 == 0) else { return Ok(()) };
    let Some(router) = &world.routers[new.router.0].alive else { return Ok(()) };
    let context = router.contexts.get(&w).copied().unwrap_or(u32::MAX);
    let waits = world.clients.iter().find(|(_, other)| {
        let request = &other.ask.request;
        let fits = request.prompt.len() as u32 + request.params.max_tokens <= context;
        other.router == new.router && other.outcome.is_none() && other.epoch.0 == 0 && other.since < new.since && fits
    });
    match waits {
        Some((request, other)) => {
            Err(format!("{} begins at w{w}, and {request} waits since {}", submit.request, other.since))
        }
        None => Ok(()),
    }
}
