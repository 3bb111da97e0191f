//! After all faults are over everything finishes: every request has ended, and nothing is left of any.

use super::{listing, operator};
use crate::operators::Duty;
use crate::world::World;

pub(crate) const NAME: &str = "after healing everything finishes";

/// Errors: what is left.
pub(crate) fn check(world: &World) -> Result<(), String> {
    if !world.probed {
        return Err("the probes are not sent yet".to_owned());
    }
    let open: Vec<String> = world
        .clients
        .iter()
        .filter(|(_, client)| client.outcome.is_none())
        .map(|(request, client)| format!("{request} in {}", client.epoch))
        .collect();
    if !open.is_empty() {
        return Err(format!("open: {}", open.join(", ")));
    }
    for (r, router) in world.routers.iter().enumerate() {
        match &router.alive {
            Some(router) if router.placement.open() > 0 => {
                return Err(format!("router {r} has {} requests open", router.placement.open()));
            }
            Some(_) => {}
            None => return Err(format!("router {r} is down")),
        }
    }
    for (w, worker) in world.workers.iter().enumerate() {
        let Some(alive) = &worker.alive else {
            if worker.gone {
                continue;
            }
            return Err(format!("w{w} is down"));
        };
        let left: Vec<_> = alive.sizes().into_iter().filter(|(_, size)| *size > 0).collect();
        if !left.is_empty() {
            return Err(format!("w{w} has {left:?}"));
        }
        let kv = &alive.machine.core().kv;
        kv.check();
        if let Some(stats) = kv.stats().into_iter().find(|stats| stats.free + stats.cached != stats.total) {
            return Err(format!("w{w} has blocks that are neither free nor cached: {stats:?}"));
        }
        for r in 0..world.routers.len() {
            if let Some(seen) = operator::seen(world, r, w).filter(|&seen| seen != Duty::of(worker.role)) {
                return Err(format!("router {r} places by {seen:?} of w{w}, which operators took back"));
            }
        }
        if alive.machine.core().backlog() > 0 {
            return Err(format!("w{w} has messages that no session takes"));
        }
    }
    listing::healed(world)?;
    if world.reads.is_empty() { Ok(()) } else { Err(format!("{} reads are not ended", world.reads.len())) }
}
