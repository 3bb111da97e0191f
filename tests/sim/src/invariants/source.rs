//! The tokens that a worker sends, wherever they go: the text of an undisturbed run, of validated copies only, and
//! with no more cached tokens than the tenant has itself to thank for.

use super::{tenants, text, validated};
use crate::event::WorkerIndex;
use crate::world::World;
use domain::session::TokenRow;

/// The invariant that is violated, and how.
pub(crate) fn check(world: &World, w: WorkerIndex, rows: &[TokenRow]) -> Result<(), (&'static str, String)> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    for row in rows {
        validated::check(alive, row).map_err(|what| (validated::NAME, format!("w{w}: {what}")))?;
        if let Some(client) = world.clients.get(&row.key.request) {
            let made = text::check(client, row.key.choice, row);
            made.map_err(|what| (text::NAME, format!("w{w} makes of {}: {what}", row.key)))?;
            tenants::told(&world.truth, client, row).map_err(|what| (tenants::NAME, format!("w{w}: {what}")))?;
        }
    }
    Ok(())
}
