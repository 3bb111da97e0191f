#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod queue;
mod scheduler;
#[cfg(test)]
mod tests;

pub use config::{ConfigError, SchedulerConfig};
pub use scheduler::Scheduler;

use domain::{Claim, SeqKey, Time};

/// What a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A step that computes its prompt.
    Compute,
    /// Room for its prompt; when there is some, it is decided whether a part of that is loaded ([`Admitted::Load`]).
    Load,
    /// What is being loaded of its prompt. That has its room; so many tokens beside it have none yet.
    Loading {
        /// The tokens.
        tokens: u32,
    },
    /// Room for a sequence that is fetched, all of it; nothing is computed.
    TakeOver,
}

/// A prompt to compute, after which its sequence decodes, or one that comes computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The sequence.
    pub key: SeqKey,
    /// What it waits for.
    pub kind: Kind,
    /// Tokens of the prompt and what was committed since. At least 1.
    pub tokens: u32,
    /// Tokens to sample where the prompt ends, one per choice that will decode on from it. At least 1.
    pub samples: u16,
    /// When the request arrived here: the younger is preempted first, and waits longer.
    pub arrived: Time,
}

impl Job {
    /// Tokens of its prompt that have no room yet.
    fn roomless_tokens(&self) -> u32 {
        if let Kind::Loading { tokens } = self.kind { tokens } else { self.tokens }
    }

    /// Returns the room that it will take: whole blocks.
    fn claim(&self, block_tokens: u32) -> Claim {
        Claim::of_job(u64::from(self.roomless_tokens()).next_multiple_of(block_tokens.into()))
    }
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits for its turn.
    Queued,
    /// [`SchedulerConfig::waiting_max`] jobs wait already; the job was not taken.
    QueueFull,
}

/// A job whose turn has come between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// There is room for all of its prompt. It waits still; what for is to be said by [`Scheduler::wait_for`].
    Load {
        /// The job.
        job: Job,
        /// Room that jobs before it will take.
        before: Claim,
    },
    /// The sequence that is fetched has its memory, and keeps its running room until it is removed.
    TakeOver {
        /// The sequence.
        key: SeqKey,
        /// Leading tokens that were there already.
        cached_tokens: u32,
    },
    /// The sequence can never run here. The scheduler has forgotten it; it holds no memory.
    Impossible(SeqKey),
}

/// What opening a sequence came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// All its prompt has slots.
    Ready {
        /// Leading tokens whose KV was there already: a whole number of blocks, less than the job's tokens if it
        /// is to be computed.
        cached_tokens: u32,
    },
    /// Not now.
    NoRoom,
    /// Not even in an empty pool.
    Never,
}

/// How far a prompt in progress is, and how far it may go for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headway {
    /// Leading tokens whose KV is there: a whole number of blocks more than the scheduler knew of, or none, and
    /// less than the job's tokens.
    pub computed: u32,
    /// Its next chunk ends here at the latest: on a block boundary, or behind the job's tokens. Not beyond
    /// `computed`: it has no chunk in this step, and others go on.
    pub until: u32,
}

/// KV memory as the scheduler sees it.
pub trait KvSpace {
    /// Opens slots for the first `tokens` positions of `key`, all or nothing, so that a prompt in progress never runs
    /// out. It does so only if there is room for `before` next to them.
    fn open(&mut self, key: SeqKey, tokens: u32, before: Claim) -> Opened;

    /// Returns whether [`open`](Self::open) would find room. Also `true` if waiting is of no use: no job is to have
    /// room before, and nothing is under way that gives any back.
    fn has_room(&mut self, key: SeqKey, tokens: u32, before: Claim) -> bool;

    /// Returns a count of whatever gave room back, and of times that sequences began or ceased to be held. While it
    /// stands still, jobs that found no room are not worth another look.
    fn given_back(&mut self) -> u64;

    /// Says, before a chunk of an open prompt, how much of the prompt is there, and whether it should wait for more.
    /// That is at least `computed`: others may have computed the same meanwhile, or it was loaded. `work` is what the
    /// step computes already.
    fn reach(&mut self, key: SeqKey, computed: u32, work: &[Work]) -> Headway;

    /// Opens slots for the first `tokens` positions of an open sequence. The last of them is writable. Asked before
    /// each token and each chunk. `false`: there is no room, for a chunk not just now: a prompt in progress has its
    /// room, but others may be about to leave it.
    fn grow(&mut self, key: SeqKey, tokens: u32) -> bool;

    /// Returns whether a decoding sequence gets no token for now, since its router takes no output. It keeps its
    /// memory until others need that: it is preempted before those that are not held. Until it is held no more,
    /// nothing of it is computed again and no job waits behind it.
    fn is_held(&self, _key: SeqKey) -> bool {
        false
    }

    /// Returns whether a decoding sequence ends at the last of the `known` tokens that it has when the steps in flight
    /// have ended, at the latest: then it is in no more steps.
    fn is_over(&self, _key: SeqKey, _known: u32) -> bool {
        false
    }

    /// Closes a sequence that was preempted: it gives everything back.
    fn close(&mut self, key: SeqKey);
}

/// Consecutive tokens of one sequence to compute in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The sequence.
    pub key: SeqKey,
    /// Position of the first token.
    pub start: u32,
    /// How many; never 0.
    pub count: u32,
    /// Tokens to sample after the last: 0 within a prompt, the job's `samples` at its end, 1 for a decode token.
    pub samples: u16,
}

/// One step, and what had to change for it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Schedule {
    /// What to compute: decode tokens by age, then chunks in order of admission. At most one entry per sequence.
    pub work: Vec<Work>,
    /// Sequences opened for this step and their cached tokens.
    pub admitted: Vec<(SeqKey, u32)>,
    /// Sequences that lost their memory and wait again, with every token they know as their prompt. Already closed.
    pub preempted: Vec<SeqKey>,
    /// Sequences that can never run here. The scheduler has forgotten them; they hold no memory.
    pub impossible: Vec<SeqKey>,
}
