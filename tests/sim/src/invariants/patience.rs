//! A request waits no longer than all work that was there meanwhile takes, one after the other: where nothing goes
//! wrong, a device that could work works, and whoever waits is served in the end.

use crate::client::Client;
use crate::scenario::Ask;
use crate::world::World;
use std::time::Duration;

pub(crate) const NAME: &str = "no wait is longer than the work there is";

/// Messages one after the other, of everything that a request needs.
const MESSAGES: u32 = 60;

/// A request ends.
pub(crate) fn check(world: &World, client: &Client) -> Result<(), String> {
    let calm = world.scenario.faults.is_empty() && !world.scenario.disks.is_some_and(|disks| disks.hangs());
    if !calm {
        return Ok(());
    }
    let there = world.clients.values().map(|other| work(world, &other.ask));
    let (took, longest) = (world.now.since(client.since), there.sum());
    if took <= longest {
        Ok(())
    } else {
        Err(format!("it took {took:?}, and all that there is to do takes {longest:?}"))
    }
}

/// How long a request takes alone, at the most: each step is as long as the longest that there was, and its prompt
/// is computed twice, for it may lose its room once it has come to be the oldest.
fn work(world: &World, ask: &Ask) -> Duration {
    let (scenario, request) = (&world.scenario, &ask.request);
    let tokens = request.prompt.len() as u32 + request.params.max_tokens;
    let chunks = tokens.div_ceil(scenario.layout.block_tokens);
    let steps = 2 * chunks + request.params.max_tokens * u32::from(request.choices);
    let bytes = u64::from(tokens) * scenario.layout.token_bytes() as u64 * 2;
    let read = Duration::from_micros(bytes / scenario.network.bytes_per_us);
    let messages = (scenario.network.latency + scenario.network.jitter) * MESSAGES;
    let moved = scenario
        .disks
        .map_or(Duration::ZERO, |disks| disks.record() * chunks * 2 * scenario.layout.groups.len() as u32);
    world.longest_step * steps + read + messages + moved
}
