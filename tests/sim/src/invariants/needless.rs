//! Nothing fails, is refused or is tried twice without a reason: in worlds where nothing goes wrong
//! ([`Scenario::is_harmless`]), a request ends regularly in its first attempt, unless it asks for what cannot be
//! had.
//!
//! [`Scenario::is_harmless`]: crate::scenario::Scenario::is_harmless

use crate::client::{Client, Outcome};
use crate::world::World;
use domain::session::{FromWorker, Submit};
use domain::{End, Ender, Finish};

pub(crate) const NAME: &str = "nothing fails without a reason";

/// A worker says something to a router.
pub(crate) fn said(world: &World, message: &FromWorker) -> Result<(), String> {
    let FromWorker::Failed { request, epoch, why, detail, .. } = message else { return Ok(()) };
    let Some(client) = world.clients.get(request).filter(|_| world.scenario.is_harmless()) else { return Ok(()) };
    if client.outcome.is_some() || is_late(world, client) || world.asks_too_much(client) {
        return Ok(());
    }
    Err(format!("{request} {epoch} fails: {why:?}: {detail}"))
}

/// A router gives an attempt to a worker.
pub(crate) fn submitted(world: &World, submit: &Submit) -> Result<(), String> {
    let first = submit.epoch.0 == 1;
    // Each worker says for itself that it cannot run so many choices.
    let too_much = world.clients.get(&submit.request).is_some_and(|client| world.asks_too_much(client));
    if first || too_much || !world.scenario.is_harmless() {
        return Ok(());
    }
    Err(format!("{} is tried again, in {}", submit.request, submit.epoch))
}

/// A request ends.
pub(crate) fn ended(world: &World, client: &Client, outcome: &Outcome) -> Result<(), String> {
    let Outcome::Ended(end) = outcome else { return Ok(()) };
    let is_regular = matches!(end.finish, Finish::Stop | Finish::Length);
    if is_regular || !world.scenario.is_harmless() || world.asks_too_much(client) {
        return Ok(());
    }
    // By the router's prediction, or since it is over.
    let predicted = client.has_deadline() && end.by == Ender::Us;
    let is_over = matches!(end, End { by: Ender::Limit, .. }) && is_late(world, client);
    if predicted || is_over || end.by == Ender::Client { Ok(()) } else { Err(format!("it is not served: {end:?}")) }
}

/// Whether the client's deadline has passed.
fn is_late(world: &World, client: &Client) -> bool {
    world.now >= client.since + client.ask.request.deadline
}
