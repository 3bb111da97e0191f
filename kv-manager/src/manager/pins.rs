//! The manager's side of pins: prefixes, such as the system prompt of many conversations, that stay on the device even
//! if others want the room.

use super::{KvManager, at};
use domain::{BlockHash, Time};

/// Answer to pinning a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// It is pinned.
    Until {
        /// Positions below this stay on the device, from when they are cached there.
        tokens: u32,
    },
    /// More blocks would be pinned than [`crate::KvConfig::pinned_percent`] allows. Nothing was pinned.
    TooMany,
}

impl KvManager {
    /// Keeps the blocks of `chain` (in windowed groups those that a prompt needs which goes on behind it) on the
    /// device until `until`, from now on or from when they are cached. A prefix that is pinned already gets the
    /// new deadline.
    pub fn pin(&mut self, chain: &[BlockHash], until: Time) -> Pinned {
        let size = self.config.block_tokens;
        let blocks = chain.len() as u32;
        let named =
            |group: &crate::GroupConfig| chain[group.first_needed(blocks * size, size).min(blocks) as usize..].to_vec();
        let named: Vec<_> = self.config.groups.iter().map(named).collect();
        let Some(&last) = chain.last().filter(|_| named.iter().any(|named| !named.is_empty())) else {
            return Pinned::Until { tokens: 0 };
        };
        let (pools, index) = (&mut self.pools, &self.index);
        let fits = self.pins.pin(last, named, until, |group, hash| {
            if let Some(block) = index.get(group, hash) {
                pools[at(group)].pin(block);
            }
        });
        self.assert_conserved();
        if fits { Pinned::Until { tokens: blocks * size } } else { Pinned::TooMany }
    }

    /// Ends the pin of exactly this prefix. Whether there was one.
    pub fn unpin(&mut self, chain: &[BlockHash]) -> bool {
        chain.last().is_some_and(|&last| self.end_pin(last))
    }

    /// Returns whether exactly this prefix is pinned.
    pub fn is_pinned(&self, chain: &[BlockHash]) -> bool {
        chain.last().is_some_and(|&last| self.pins.has(last))
    }

    /// Ends the pins that have lapsed by now. How many.
    pub fn expire_pins(&mut self, now: Time) -> usize {
        let before = self.pins.len();
        while let Some(last) = self.pins.lapsed(now) {
            self.end_pin(last);
        }
        before - self.pins.len()
    }

    /// Returns when [`expire_pins`](Self::expire_pins) next has something to end.
    pub fn next_pin_deadline(&self) -> Option<Time> {
        self.pins.next_deadline()
    }

    /// Prefixes that are pinned.
    pub fn pins(&self) -> usize {
        self.pins.len()
    }

    fn end_pin(&mut self, last: BlockHash) -> bool {
        let (pools, index) = (&mut self.pools, &self.index);
        let ended = self.pins.unpin(last, |group, hash| {
            if let Some(block) = index.get(group, hash) {
                pools[at(group)].unpin(block);
            }
        });
        self.assert_conserved();
        ended
    }
}
