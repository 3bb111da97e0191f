//! What a transfer adds to the timeline: when slices begin to move, and when they are there.
//!
//! What is deliberately absent: where the timeline goes. These are events of `tracing`, and nothing is computed
//! for them unless somebody asks for them.

use crate::agent::event::TransferId;
use crate::agent::link::Link;
use domain::ProgressWord;
use tracing::Level;

/// How far slices are.
#[derive(Clone, Copy)]
pub(crate) enum Moment {
    Begun,
    Read,
}

/// Notes that slices of transfer `id` began to move, or are there. `slices`: their gate, and their bytes.
pub(crate) fn note(moment: Moment, id: TransferId, link: &Link, slices: impl FnOnce() -> (u64, usize)) {
    if !tracing::enabled!(target: "timeline", Level::TRACE) {
        return;
    }
    let (gate, bytes) = slices();
    let (lane, peer, transfer) = (link.lane().name(), &link.name, id.0);
    // Slices that were written before they were asked for have no gate.
    let (step, layer) = ProgressWord::parts(gate).map(|(step, layer)| (step.0, layer)).unzip();
    match moment {
        Moment::Begun => tracing::trace!(target: "timeline", lane, peer, transfer, step, layer, bytes, "slices begun"),
        Moment::Read => tracing::trace!(target: "timeline", lane, peer, transfer, step, layer, bytes, "slices read"),
    }
}
