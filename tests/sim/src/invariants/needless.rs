//! Nothing fails, is refused or is tried twice without a reason: in worlds where nothing goes wrong
//! ([`Scenario::is_harmless`]), a request ends regularly in its first attempt, unless it asks for what cannot be
//! had. A worker that an operator drains, or gives another role, refuses attempts; one that drains refuses to move a
//! sequence that it has preempted. That counts for no attempt. A sequence that it preempts while it moves is tried
//! again.
//!
//! [`Scenario::is_harmless`]: crate::scenario::Scenario::is_harmless

use crate::client::{Client, Outcome};
use crate::event::WorkerIndex;
use crate::process::WorkerLife;
use crate::world::World;
use domain::session::{Assignment, Failure, FromWorker, Submit};
use domain::{End, Ender, Epoch, Finish, RequestId};

pub(crate) const NAME: &str = "nothing fails without a reason";

/// A worker says something to a router.
pub(crate) fn said(world: &World, w: WorkerIndex, message: &FromWorker) -> Result<(), String> {
    let FromWorker::Failed { request, epoch, why, detail, .. } = message else { return Ok(()) };
    let Some(client) = world.clients.get(request).filter(|_| world.scenario.is_harmless()) else { return Ok(()) };
    if matches!(why, Failure::QueueFull | Failure::Draining) && is_operators_will(world, w, (*request, *epoch)) {
        return Ok(());
    }
    if *why == Failure::HandoffLapsed && moves(world, *request) {
        return Ok(());
    }
    if client.outcome.is_some() || is_late(world, client) || world.asks_too_much(client) {
        return Ok(());
    }
    Err(format!("{request} {epoch} fails: {why:?}: {detail}"))
}

/// Whether a worker was once drained, or of another role, so that it did not take this attempt.
pub(crate) fn is_operators_will(world: &World, w: WorkerIndex, attempt: (RequestId, Epoch)) -> bool {
    let Some(alive) = &world.workers[w].alive else { return false };
    let assignment = alive.parts.get(&attempt);
    assignment.is_some_and(|&assignment| alive.duties.iter().any(|duty| !duty.takes(assignment)))
}

/// Whether a worker was asked to take the running sequence over: where nothing goes wrong, since an operator drains the
/// one that had it.
fn moves(world: &World, request: RequestId) -> bool {
    let takes_over = |alive: &WorkerLife| {
        let mut parts = alive.parts.iter();
        parts.any(|(&(of, _), part)| of == request && matches!(part, Assignment::TakeOver { .. }))
    };
    world.workers.iter().filter_map(|worker| worker.alive.as_ref()).any(takes_over)
}

/// A router gives an attempt to a worker.
pub(crate) fn submitted(world: &World, submit: &Submit) -> Result<(), String> {
    let Some(client) = world.clients.get(&submit.request) else { return Ok(()) };
    let router = world.routers[client.router.0].alive.as_ref();
    // Moves and what follows a refusal are the same attempt.
    let attempts = router.and_then(|router| router.placement.attempts(submit.request));
    let first = attempts.is_none_or(|attempts| attempts == 1);
    // Each worker says for itself that it cannot run so many choices.
    if first || world.asks_too_much(client) || !world.scenario.is_harmless() || moves(world, submit.request) {
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
