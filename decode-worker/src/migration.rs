//! Handing a running sequence over: a handoff whose sender decodes.
//!
//! The sequence is offered up to a position a little ahead of where it is. What is written is read while it
//! decodes on; when it has the token at that position it stops, and the other goes on from there under a new
//! epoch. The two never make the same token, so nothing has to be undone.

use domain::session::Migrate;
use domain::{SeqKey, Time};
use worker::{Core, Offers, Taker};

/// Offers the sequence. Errors: why it cannot move; its attempt is to be failed, and is replayed elsewhere.
pub(crate) fn begin(offers: &mut Offers, core: &mut Core, now: Time, migrate: Migrate) -> Result<(), &'static str> {
    let (request, epoch) = (migrate.request, migrate.epoch);
    let Some(attempt) = core.attempt(request, epoch) else { return Ok(()) };
    let [choice] = attempt.live[..] else { return Err("only a request with one choice moves while it runs") };
    let key = SeqKey { request, epoch, choice };
    let Some(tokens) = core.lead(key) else { return Err("a sequence moves once it decodes") };
    if offers.taker(key).is_some() {
        return Ok(());
    }
    let taker = Taker { to: migrate.to, epoch: migrate.next, lease: migrate.lease, tokens, known: migrate.known };
    if offers.begin(core, now, key, taker) { Ok(()) } else { Err("too many leases are open") }
}

/// Notes that the sequence got a token. If it is the last one that the offer covers, the other worker goes on from it.
pub(crate) fn appended(offers: &mut Offers, core: &mut Core, key: SeqKey) {
    let Some(taker) = offers.taker(key) else { return };
    let Some(sequence) = core.sequence(key) else {
        // It ended before. The router knows, and the reader has nothing to go on with.
        return offers.complete(core, key, Vec::new(), Vec::new());
    };
    if sequence.tokens.len() as u32 <= taker.tokens {
        return;
    }
    // It is offered with one output token at least.
    let (output, made) = (sequence.tokens.output(), taker.tokens as usize - sequence.tokens.prompt().len());
    let missing = output[(taker.known as usize).min(made)..made].to_vec();
    let first = vec![(key.choice, output[made])];
    // Its tokens are on their way to the router before the other can say the next.
    core.hand_over(key);
    offers.complete(core, key, missing, first);
}
