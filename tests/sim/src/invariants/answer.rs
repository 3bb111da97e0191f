//! What an owner answers to a release: valid only if the lease was alive and the blocks hold what the tokens
//! demand, and not invalid if it was surely alive and complete.

use crate::event::WorkerIndex;
use crate::lease::Lease;
use crate::world::World;
use domain::{LeaseId, WorkerId};

pub(crate) const NAME: &str = "a release is answered as it should be";

/// What may be answered.
pub(crate) struct Expected {
    pub(crate) lease: LeaseId,
    /// It may be called valid.
    valid: bool,
    /// It may be called invalid.
    invalid: bool,
    /// It was answered before, and its blocks may be another's by now.
    repeated: bool,
}

/// What a release should get, before it is handled. `None`: nothing is known of it.
pub(crate) fn expect(world: &World, w: WorkerIndex, from: WorkerId, id: LeaseId) -> Option<Expected> {
    let lease = world.leases.get((w, world.workers[w].life, id)).filter(|lease| lease.reader == from)?;
    let is_present = world.workers[world.worker_index(from)].life == lease.reader_life;
    Some(Expected {
        lease: id,
        valid: lease.lives_perhaps(world.now) || lease.answer == Some(true),
        repeated: lease.answer.is_some(),
        invalid: !(lease.complete && lease.lives_surely(world.now) && is_present),
    })
}

pub(crate) fn check(world: &mut World, w: WorkerIndex, expected: &Expected, valid: bool) -> Result<(), String> {
    let key = (w, world.workers[w].life, expected.lease);
    let Some(lease) = world.leases.get_mut(key) else { return Ok(()) };
    lease.over = true;
    lease.answer.get_or_insert(valid);
    let Some(lease) = world.leases.get(key) else { return Ok(()) };
    let name = format!("w{w}: {} on {}", expected.lease, lease.request);
    match valid {
        true if !expected.valid => Err(format!("{name} is called valid, and had lapsed or was void")),
        false if !expected.invalid => Err(format!("{name} is called invalid, and was alive and complete")),
        true if !expected.repeated => {
            bytes(world, w, lease).map_err(|what| format!("{name} is called valid, and {what}"))
        }
        _ => Ok(()),
    }
}

/// Whether the owner's memory holds what was offered: of one of the request's choices.
fn bytes(world: &World, w: WorkerIndex, lease: &Lease) -> Result<(), String> {
    let (Some(alive), Some(client)) = (&world.workers[w].alive, world.clients.get(&lease.request)) else {
        return Ok(());
    };
    let size = world.scenario.layout.block_tokens;
    let mut found = Ok(());
    for sequence in client.undisturbed.iter().filter(|sequence| sequence.tokens.len() >= lease.tokens as usize) {
        found = lease.blocks.iter().try_for_each(|&(block, _, number)| {
            let group = usize::from(block.group.0);
            let positions = size.min(lease.tokens - number * size);
            let held = world.truth.holds_part(sequence, &alive.pools[group], group, block.block.0, number, positions);
            held.map_err(|what| format!("{block:?} {what}"))
        });
        if found.is_ok() {
            return Ok(());
        }
    }
    found
}
