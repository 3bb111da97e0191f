//! Memory is bounded: no list outgrows what it is about, and no core its limits.

use crate::event::WorkerIndex;
use crate::world::World;

pub(crate) const NAME: &str = "memory is bounded";

pub(crate) fn check(world: &World, w: WorkerIndex) -> Result<(), String> {
    let Some(alive) = &world.workers[w].alive else { return Ok(()) };
    let sizes = alive.sizes();
    let size = |name: &str| sizes.iter().find(|(of, _)| *of == name).map_or(0, |&(_, size)| size);
    let attempts: usize = size("attempts");
    let per_attempt = 1 + alive.machine.core().attempts().map(|(.., a)| a.submit.choices.len()).max().unwrap_or(0);
    let fetches = size("fetches");
    // What a step computes with stays until it ends, and a fetch until its reads have.
    let sequences = (attempts + fetches) * per_attempt + size("sequences in a step");
    let running = world.scenario.scheduler.running_max as usize;
    let bounds = [
        ("sequences", sequences),
        // Of a load too, whose prompt may be gone before its reads have ended.
        ("open sequences", sequences + size("loads from tiers")),
        ("scheduled sequences", sequences),
        ("sequences in a step", running * world.scenario.steps_in_flight),
        ("frames of tokens", 0),
        ("leases of fetches", fetches),
        ("deadlines of fetches", fetches),
        ("fetches that wait for room", fetches),
        ("sequences taken over", running.min(fetches)),
        ("offers", attempts),
        // Of every attempt, moves included.
        ("early offers", world.clients.len() * 2 * world.scenario.attempts_max as usize),
        ("readers of leases", size("live leases")),
        ("attempts", world.clients.len() * 2),
    ];
    for (name, bound) in bounds {
        if size(name) > bound {
            return Err(format!("{} {name}, at most {bound} should be: {sizes:?}", size(name)));
        }
    }
    for router in &world.routers {
        let Some(router) = &router.alive else { continue };
        if router.placement.open() > world.scenario.requests_max {
            return Err(format!("{} requests are open at a router", router.placement.open()));
        }
        if router.placement.indexed_blocks() > world.scenario.index_blocks_max {
            return Err(format!("{} blocks are in a router's index", router.placement.indexed_blocks()));
        }
    }
    Ok(())
}
