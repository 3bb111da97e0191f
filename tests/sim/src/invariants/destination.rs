//! A read writes into blocks of its own fetch only: none of them was given to a new use meanwhile.

use crate::process::Worker;
use crate::read::Read;

pub(crate) const NAME: &str = "a read writes where it was told and nobody else is";

pub(crate) fn check(workers: &[Worker], read: &Read) -> Result<(), String> {
    let Some(alive) = &workers[read.reader.0].alive else { return Ok(()) };
    let kv = &alive.machine.core().kv;
    for &(block, generation) in &read.destination {
        let now = kv.generation(block);
        if now != generation {
            let (reader, id) = (read.reader.0, read.id.0);
            return Err(format!("read {id} of w{reader} writes {block:?} in {now}, it was given it in {generation}"));
        }
    }
    Ok(())
}
