//! The scheduler's view of the KV manager.

use crate::sequence::Sequence;
use domain::SeqKey;
use domain::plan::BlockCopy;
use kv_manager::{Admit, Grow, KvManager};
use scheduler::{KvSpace, Opened};
use std::collections::HashMap;

pub(crate) struct Space<'a> {
    pub(crate) kv: &'a mut KvManager,
    pub(crate) sequences: &'a HashMap<SeqKey, Sequence>,
    /// Copies on write that the step must begin with, and for whom.
    pub(crate) copies: Vec<(SeqKey, BlockCopy)>,
}

impl KvSpace for Space<'_> {
    fn open(&mut self, key: SeqKey, tokens: u32) -> Opened {
        let chain = self.sequences.get(&key).map_or(&[][..], |sequence| &sequence.chain);
        match self.kv.open(key, chain, tokens, 1) {
            Admit::Ready { cached_tokens } => Opened::Ready { cached_tokens },
            Admit::NoRoom => Opened::NoRoom,
            Admit::Never => Opened::Never,
        }
    }

    fn grow(&mut self, key: SeqKey, tokens: u32) -> bool {
        match self.kv.grow(key, tokens) {
            Grow::Ready(copies) => {
                self.copies.extend(copies.into_iter().map(|copy| (key, copy)));
                true
            }
            Grow::NoRoom => false,
        }
    }

    fn close(&mut self, key: SeqKey) {
        self.copies.retain(|&(copies_for, _)| copies_for != key);
        self.kv.close(key);
    }
}
