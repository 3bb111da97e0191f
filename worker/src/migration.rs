//! The owner's side of a migration: a handoff whose owner decodes.
//!
//! The owner offers the sequence up to a position a little ahead of where the sequence is. The reader reads what is
//! written while the owner decodes on. When the owner has the token at that position, it stops, and the reader goes on
//! from there under a new epoch. The two never make the same token, so nothing has to be undone.

use crate::offers::{Offers, Taker};
use crate::state::WorkerState;
use domain::session::{Assignment, Failure, Migrate};
use domain::{SeqKey, Time};

/// Why a sequence cannot move. Its attempt fails, and the router replays it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MigrationError {
    /// The attempt ends with its handoff.
    #[error("a prompt that is handed off cannot move")]
    HandedOff,
    /// More than one choice runs, or the choices share a prompt that is not computed yet.
    #[error("only a request with one choice moves while it runs")]
    ManyChoices,
    /// The sequence waits, is fetched, or its prompt is not computed yet.
    #[error("a sequence moves once it decodes")]
    NotDecoding,
    /// The bound on open leases is reached.
    #[error("too many leases are open")]
    TooManyLeases,
}

impl MigrationError {
    /// Returns what the router is told. `ends`: the worker is about to end. A worker that an operator drains is not,
    /// and a router that took it for one would give it nothing when it takes work again.
    pub(crate) fn failure(self, ends: bool) -> Failure {
        match self {
            MigrationError::HandedOff => Failure::Engine,
            MigrationError::ManyChoices | MigrationError::NotDecoding | MigrationError::TooManyLeases if ends => {
                Failure::Draining
            }
            MigrationError::ManyChoices | MigrationError::NotDecoding | MigrationError::TooManyLeases => {
                Failure::QueueFull
            }
        }
    }
}

/// Offers the sequence of an attempt to the worker that takes it over. Does nothing if the attempt is over, or the
/// sequence is offered already.
pub(crate) fn begin(
    offers: &mut Offers,
    core: &mut WorkerState,
    now: Time,
    migrate: Migrate,
) -> Result<(), MigrationError> {
    let (request, epoch) = (migrate.request, migrate.epoch);
    let Some(attempt) = core.attempt(request, epoch) else { return Ok(()) };
    if matches!(attempt.submit.assignment, Assignment::Prefill { .. }) {
        return Err(MigrationError::HandedOff);
    }
    let [choice] = attempt.live[..] else { return Err(MigrationError::ManyChoices) };
    let key = SeqKey { request, epoch, choice };
    let tokens = core.lead(key).ok_or(MigrationError::NotDecoding)?;
    if offers.taker(key).is_some() {
        return Ok(());
    }
    let taker = Taker { to: migrate.to, epoch: migrate.next, lease: migrate.lease, tokens, known: migrate.known };
    if offers.begin(core, now, key, taker) { Ok(()) } else { Err(MigrationError::TooManyLeases) }
}

/// Completes the offer of a sequence that got a token, if that token is at the position up to which it was offered.
pub(crate) fn token_appended(offers: &mut Offers, core: &mut WorkerState, key: SeqKey) {
    let Some(taker) = offers.taker(key) else { return };
    let Some(sequence) = core.sequence(key).filter(|sequence| !sequence.closing) else {
        // The token ended the sequence. The router has received the end, and the reader has nothing to go on with.
        return offers.complete(core, key, Vec::new(), Vec::new());
    };
    if sequence.tokens.len() as u32 <= taker.tokens {
        return;
    }
    // The offer covers one output token at least.
    let (output, made) = (sequence.tokens.output(), taker.tokens as usize - sequence.tokens.prompt().len());
    let missing = output[(taker.known as usize).min(made)..made].to_vec();
    let first = vec![(key.choice, output[made])];
    // The owner sends its tokens to the router before the reader can send the next one.
    core.hand_over(key);
    offers.complete(core, key, missing, first);
}
