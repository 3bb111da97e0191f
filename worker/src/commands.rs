//! Commands of an operator: pin a prefix, such as a system prompt, to the device, unpin it, or park a conversation. The
//! interface that they arrive over is outside this crate.

use crate::state::WorkerState;
use domain::{BlockHash, Time, Token};
use kv_manager::Pinned;
use std::time::Duration;

/// The longest duration of a pin. A prefix can be pinned again.
pub const PIN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Tokens that sequences of a tenant begin with. Only their full blocks count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The tenant of the sequences. Empty: requests without a tenant.
    pub tenant: String,
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// A command to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Keep the prefix on the device for `duration`, at most [`PIN_MAX`], once it is there. The worker does not compute
    /// the prefix for this.
    Pin {
        /// The prefix to keep.
        prefix: Prefix,
        /// Time from now; what is beyond [`PIN_MAX`] is cut off.
        duration: Duration,
    },
    /// Unpin the prefix.
    Unpin {
        /// A prefix exactly as it was pinned.
        prefix: Prefix,
    },
    /// Move the unused blocks of the prefix off the device, to the lowest tier of the host.
    Park {
        /// The prefix to move.
        prefix: Prefix,
    },
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The prefix is pinned.
    Pinned {
        /// Tokens in its full blocks.
        tokens: u32,
    },
    /// The pins would name more than the share of the pools that pins may name.
    TooManyPinned,
    /// The prefix is not pinned.
    Unpinned {
        /// It was pinned before.
        was_pinned: bool,
    },
    /// Blocks left the device, or will leave it unless they are used before. None do if all blocks are in use, or there
    /// is no tier.
    Parked {
        /// Blocks of all KV groups.
        blocks: u32,
    },
}

impl WorkerState {
    /// Executes a command.
    pub(crate) fn command(&mut self, now: Time, command: Command) -> Answer {
        match command {
            Command::Pin { prefix, duration } => {
                match self.kv.pin(&self.chain_of(&prefix), now + duration.min(PIN_MAX)) {
                    Pinned::Until { tokens } => Answer::Pinned { tokens },
                    Pinned::TooMany => Answer::TooManyPinned,
                }
            }
            Command::Unpin { prefix } => Answer::Unpinned { was_pinned: self.kv.unpin(&self.chain_of(&prefix)) },
            Command::Park { prefix } => {
                let blocks = self.kv.park(&self.chain_of(&prefix));
                self.loader().write_to_tiers();
                Answer::Parked { blocks }
            }
        }
    }

    fn chain_of(&self, prefix: &Prefix) -> Vec<BlockHash> {
        let mut chain = Vec::new();
        let scope = self.config.scope(&prefix.tenant);
        scope.extend_chain(&mut chain, &prefix.tokens, self.config.layout.block_tokens);
        chain
    }
}
