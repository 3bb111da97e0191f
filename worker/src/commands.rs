//! What an operator asks of a worker: prefixes, such as system prompts, are pinned to the device or let go, and
//! conversations are parked. Over which interface that is asked is not known here.

use crate::core::Core;
use domain::{BlockHash, Time, Token};
use kv_manager::Pinned;
use std::time::Duration;

/// The longest that a pin lasts; it can be pinned anew.
pub const PIN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Tokens that sequences of a tenant begin with. Only the full blocks of them count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The tenant of the sequences. Empty: requests without a tenant.
    pub tenant: String,
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// What a worker is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Keep the prefix on the device for so long, at most [`PIN_MAX`], once it is there. The worker does not
    /// compute it for that.
    Pin {
        /// The prefix to keep.
        prefix: Prefix,
        /// Time from now; what is beyond [`PIN_MAX`] is cut off.
        duration: Duration,
    },
    /// Keep it no longer.
    Unpin {
        /// A prefix exactly as it was pinned.
        prefix: Prefix,
    },
    /// Move what nobody uses of it off the device, to the lowest tier of the host.
    Park {
        /// The prefix to move.
        prefix: Prefix,
    },
}

/// What a worker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// So many tokens of the prefix are pinned.
    Pinned {
        /// Those of its full blocks.
        tokens: u32,
    },
    /// More would be pinned than the worker's share of its pools for that.
    TooManyPinned,
    /// It is not pinned, whether or not it was.
    Unpinned {
        /// It was.
        was_pinned: bool,
    },
    /// So many blocks left the device, or will unless somebody uses them before. None: nothing that nobody uses is
    /// there, or there is no tier.
    Parked {
        /// Of all KV groups.
        blocks: u32,
    },
}

impl Core {
    /// Does what is asked.
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
