//! Whoever refuses a request costs it no attempt: it goes to others as if it had not been there.

use crate::world::World;
use domain::RequestId;
use domain::session::Failure::{Draining, QueueFull, TooLarge};
use domain::session::FromWorker;
use placement::{Event, Placement};

pub(crate) const NAME: &str = "a refusal costs no attempt";

/// A request that is being refused, and what there was before.
pub(crate) struct Refused {
    request: RequestId,
    attempts: u32,
    silences: u64,
}

/// What happens to a router: whether it is that a request is refused.
pub(crate) fn expect(placement: &Placement, event: &Event) -> Option<Refused> {
    let request = match event {
        Event::Unsent { request, .. } => *request,
        Event::Worker { message: FromWorker::Failed { request, why: QueueFull | Draining | TooLarge, .. }, .. } => {
            *request
        }
        _ => return None,
    };
    let attempts = placement.attempts(request)?;
    Some(Refused { request, attempts, silences: placement.counters().silences })
}

/// The router has done with it.
pub(crate) fn check(world: &World, placement: &Placement, refused: &Refused) -> Result<(), String> {
    let attempts = placement.attempts(refused.request);
    // A worker that says nothing may be lost at the same time.
    let is_alone = placement.counters().silences == refused.silences;
    match attempts.filter(|&attempts| is_alone && attempts > refused.attempts) {
        Some(attempts) => {
            let most = world.scenario.attempts_max;
            Err(format!("{} is in attempt {attempts} of {most} for one", refused.request))
        }
        None => Ok(()),
    }
}
