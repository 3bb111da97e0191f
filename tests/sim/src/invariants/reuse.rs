//! No block is given to a new use while a lease on it lives.

use crate::event::WorkerIndex;
use crate::world::World;

pub(crate) const NAME: &str = "no reuse under a live lease";

pub(crate) fn check(world: &World, w: WorkerIndex) -> Result<(), String> {
    let worker = &world.workers[w];
    let Some(alive) = &worker.alive else { return Ok(()) };
    let kv = &alive.machine.core().kv;
    for (id, lease) in world.leases.of(w, worker.life).filter(|(_, lease)| lease.lives_surely(world.now)) {
        // Leases of a reader's earlier life end as soon as the owner hears of the next.
        if world.workers[world.worker_index(lease.reader)].life != lease.reader_life {
            continue;
        }
        for &(block, generation, _) in &lease.blocks {
            let now = kv.generation(block);
            if now != generation {
                return Err(format!(
                    "{block:?} is in {now}, {id} of {} was given on it in {generation}",
                    lease.request
                ));
            }
        }
    }
    Ok(())
}
