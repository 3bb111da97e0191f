//! No slot of a tier is used twice at once: what is written, or will have been lifted, goes where nothing is read and
//! nothing else is written.

use crate::disk::Move;
use crate::process::Worker;

pub(crate) const NAME: &str = "no slot is used twice at once";

/// A move takes the slot that it writes to, if it does.
pub(crate) fn taken(worker: &mut Worker, what: &Move) -> Result<(), String> {
    let Some(place) = what.takes() else { return Ok(()) };
    match worker.tier(place.tier).stock.of(place.slot) {
        Some((_, idle)) if !idle => Err(format!("{what:?} takes {place:?}, which is read or written")),
        _ => Ok(()),
    }
}
