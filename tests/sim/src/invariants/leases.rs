//! A lease lives until its own release, its lapse or its owner's withdrawal, and ends by nothing else.

use crate::event::WorkerIndex;
use crate::world::World;

pub(crate) const NAME: &str = "a lease ends by its own release, lapse or withdrawal";

pub(crate) fn check(world: &World, w: WorkerIndex) -> Result<(), String> {
    let worker = &world.workers[w];
    let Some(alive) = &worker.alive else { return Ok(()) };
    let kv = &alive.machine.core().kv;
    for (id, lease) in world.leases.of(w, worker.life).filter(|(_, lease)| lease.lives_surely(world.now)) {
        // Those of a reader's earlier life end as soon as the owner hears of the next.
        let is_present = world.workers[world.worker_index(lease.reader)].life == lease.reader_life;
        if is_present && !kv.is_alive(world.now, id) {
            return Err(format!("{id} of {} was ended by nobody, and is not alive", lease.request));
        }
    }
    Ok(())
}
