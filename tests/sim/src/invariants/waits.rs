//! Nothing waits beyond its time: a worker that has had its turn has ended what was due.

use crate::event::WorkerIndex;
use crate::world::World;
use domain::{Epoch, RequestId, Time};
use kv_manager::FetchState;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const NAME: &str = "no wait beyond its bound";

/// Fetches that wait, for what, and since when they were seen to.
pub(crate) type Since = BTreeMap<(RequestId, Epoch), (FetchState, Time)>;

/// A worker stood still for so long, in which nothing came to it.
pub(crate) fn stood_still(waits: &mut Since, pause: Duration) {
    waits.values_mut().for_each(|(_, since)| *since = *since + pause);
}

pub(crate) fn check(world: &mut World, w: WorkerIndex) -> Result<(), String> {
    let (now, scenario) = (world.now, &world.scenario);
    let Some(alive) = &mut world.workers[w].alive else { return Ok(()) };
    let core = alive.machine.core();
    if let Some((request, epoch, _)) = core.attempts().find(|(.., attempt)| attempt.deadline <= now) {
        return Err(format!("{request} {epoch} is open after its deadline"));
    }
    if core.kv.next_deadline().is_some_and(|deadline| deadline <= now) {
        return Err("a lease lives after its time".to_owned());
    }
    let before = std::mem::take(&mut alive.waits);
    for fetch in alive.machine.fetches().progress() {
        let longest = match fetch.state {
            FetchState::Expecting | FetchState::WaitingRoom => scenario.handoff_wait,
            FetchState::Answering => scenario.answer_wait,
            FetchState::Reading | FetchState::Quiescing | FetchState::Done => continue,
        };
        let id = (fetch.request, fetch.epoch);
        let since = before.get(&id).filter(|(state, _)| *state == fetch.state).map_or(now, |&(_, since)| since);
        // As long as the owner says that the prompt is queued, its queue is what is waited for.
        let queued = fetch.queued.filter(|_| fetch.state == FetchState::Expecting);
        let since = queued.map_or(since, |queued| since.max(queued));
        if now.since(since) > longest {
            return Err(format!("{} {} is {:?} for {:?}", id.0, id.1, fetch.state, now.since(since)));
        }
        alive.waits.insert(id, (fetch.state, since));
    }
    Ok(())
}
