//! The renewal of a lease that is over is answered, so that its reader does not read on for nothing.

use crate::event::WorkerIndex;
use crate::shell::Output;
use crate::world::World;
use domain::handoff::{PeerBody, PeerMessage};
use domain::{Incarnation, LeaseId};

pub(crate) const NAME: &str = "the renewal of a lease that is over is answered";

/// A worker is about to handle a message: the lease that it renews, if that is over and was not found valid.
pub(crate) fn expect(world: &World, w: WorkerIndex, message: &PeerMessage) -> Option<LeaseId> {
    let PeerBody::Renew { lease: id, .. } = message.body else { return None };
    let life = world.workers[w].life;
    let lease = world.leases.get((w, life, id)).filter(|lease| lease.reader == message.from)?;
    let to_it = message.to_incarnation.is_none_or(|to| to == Incarnation(life));
    (to_it && !lease.lives_perhaps(world.now) && lease.answer != Some(true)).then_some(id)
}

/// It has handled it.
pub(crate) fn check(world: &World, w: WorkerIndex, lease: LeaseId) -> Result<(), String> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    let says_so = |output: &Output| {
        let (Output::Message { bytes, .. } | Output::Untaken { bytes }) = output else { return false };
        let message = proto::handoff::decode(bytes).expect("a worker speaks the protocol");
        matches!(message.body, PeerBody::Released { lease: of, valid: false } if of == lease)
    };
    if alive.shell.notes().outputs.iter().any(says_so) {
        return Ok(());
    }
    Err(format!("{lease} is over, and its renewal is not answered"))
}
