//! Prompts whose prefixes lie in a tier, and a worker that is short of room for them.

use super::commands::{ask, small};
use super::*;

const PROMPTS: u64 = 6;
/// Tokens that a prompt of 40 can have from a cache: full blocks of four, and the last token is computed.
const LOADABLE: u32 = 36;

/// What is loaded for one is not given up for what is loaded for the next before its prompt was admitted, nor is a
/// prompt computed because there was no room to load its prefix when it came: each waits for room, and then for
/// the tier.
#[test]
fn prompts_that_come_together_are_not_computed_for_want_of_room() {
    let mut cluster = small();
    // Computing takes so long that loading is always the faster way.
    cluster.decode_knobs.layer_us.store(45_000, Ordering::Relaxed);
    let asked = |id: u64| Asked::new(id, prompt(40, (id % 100) as u32), 4);
    for id in 1..=PROMPTS {
        ask(&mut cluster, &asked(id));
        cluster.until("it to be parked", |cluster| cluster.park(DECODE, "", &asked(id).prompt) == 0);
    }
    let again: Vec<Asked> = (101..=100 + PROMPTS).map(asked).collect();
    again.iter().for_each(|request| cluster.submit(DECODE, request, Assignment::Whole));
    finish(&mut cluster, &again);
    let cached: Vec<u32> = again.iter().map(|request| cluster.rows[&request.key(0)][0].1.cached_tokens).collect();
    // Tiers that are slow at times are helped by computing a part; what finds no room is computed as a whole.
    assert!(cached.iter().sum::<u32>() >= LOADABLE * PROMPTS as u32 / 2, "{cached:?}");
}
