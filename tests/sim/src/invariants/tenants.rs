//! No block is two tenants': what a tenant's sequence uses, what is offered for it and what moves for it is its
//! own, and it is told of no more cached tokens than if nobody else were there.

use crate::client::Client;
use crate::event::WorkerIndex;
use crate::expected::Expected;
use crate::world::World;
use domain::handoff::Offer;
use domain::session::TokenRow;
use domain::{BlockRef, Epoch, GroupId, Tenant};

pub(crate) const NAME: &str = "no block is two tenants'";

/// The epoch of a request's first attempt.
const FIRST: Epoch = Epoch(1);

/// `deep`: what blocks hold too, whether or not a sequence uses them.
pub(crate) fn check(world: &World, w: WorkerIndex, deep: bool) -> Result<(), String> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    let kv = &alive.machine.core().kv;
    for (key, tables) in kv.sequences() {
        let Some(client) = world.clients.get(&key.request) else { continue };
        for (group, table) in (0..).map(GroupId).zip(tables) {
            for &block in &table.blocks {
                let block = BlockRef { group, block };
                is_of(kv.tenant(block), client.tenant).map_err(|what| format!("{key} uses {block:?}, {what}"))?;
            }
        }
    }
    for (block, _, hash) in kv.sealed().filter(|_| deep) {
        if kv.tenant(block).is_none_or(|tenant| !world.truth.has_said(tenant, hash)) {
            return Err(format!("{block:?} of {:?} holds what that one did not say", kv.tenant(block)));
        }
    }
    Ok(())
}

/// A worker offers blocks for a request.
pub(crate) fn offered(world: &World, w: WorkerIndex, offer: &Offer) -> Result<(), String> {
    let (Some(alive), Some(client)) = (&world.workers[w].alive, world.clients.get(&offer.request)) else {
        return Ok(());
    };
    for (group, offered) in (0..).map(GroupId).zip(&offer.groups) {
        for &(block, _) in &offered.blocks {
            let block = BlockRef { group, block };
            let of = alive.machine.core().kv.tenant(block);
            is_of(of, client.tenant).map_err(|what| format!("{block:?} is offered for {}, {what}", offer.request))?;
        }
    }
    Ok(())
}

/// A record of a tenant's is written from a block, or read into it.
pub(crate) fn moved(world: &World, w: WorkerIndex, block: BlockRef, record: Tenant) -> Result<(), String> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    let of = alive.machine.core().kv.tenant(block);
    is_of(of, record).map_err(|what| format!("w{w} moves a record of {record:?} and {block:?}, {what}"))
}

/// A worker tells of cached tokens.
pub(crate) fn told(truth: &Expected, client: &Client, row: &TokenRow) -> Result<(), String> {
    if row.cached_tokens == 0 {
        return Ok(());
    }
    let tokens = &client.undisturbed[usize::from(row.key.choice.0)].tokens;
    // After an earlier attempt, or when it made room for others meanwhile, it finds its own.
    let own = row.key.epoch > FIRST || row.index > 0;
    let alone = truth.cached_alone(&client.ask.request, tokens, own);
    if row.cached_tokens <= alone {
        return Ok(());
    }
    Err(format!("{} is told of {} cached tokens, alone it could have {alone}", row.key, row.cached_tokens))
}

fn is_of(tenant: Option<Tenant>, expected: Tenant) -> Result<(), String> {
    if tenant == Some(expected) { Ok(()) } else { Err(format!("which is of {tenant:?}, not of {expected:?}")) }
}
