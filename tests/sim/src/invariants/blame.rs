//! Nobody is blamed for what another one lacked: a handoff that found no room at its reader in time is not its
//! owner's fault.

use crate::event::WorkerIndex;
use crate::world::World;
use domain::SeqKey;
use domain::session::{Failure, FromWorker};
use worker::PROMPT;

pub(crate) const NAME: &str = "nobody is blamed for what another one lacked";

/// A worker says something to a router. It gives room in its turns only, and was looked at after the last one
/// ([`super::line`]).
pub(crate) fn check(world: &World, w: WorkerIndex, message: &FromWorker) -> Result<(), String> {
    let &FromWorker::Failed { request, epoch, why: Failure::HandoffTimeout, fault: Some(peer), .. } = message else {
        return Ok(());
    };
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    let stand = alive.line.get(&SeqKey { request, epoch, choice: PROMPT });
    match stand.filter(|stand| stand.handoff).and_then(|stand| stand.waits) {
        Some(since) => Err(format!("{request} {epoch} waits for room since {since}, and {peer} is to blame")),
        None => Ok(()),
    }
}
