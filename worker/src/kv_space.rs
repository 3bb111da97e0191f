//! The scheduler's view of the KV manager.

use crate::attempts::Attempts;
use crate::loading::{Loads, Pace};
use crate::sequence::Sequence;
use crate::sessions::Sessions;
use domain::plan::BlockCopy;
use domain::{Claim, SeqKey, Tenant, Time};
use kv_manager::{Admit, CaughtUp, Grow, KvManager};
use scheduler::{Headway, KvSpace, Opened, Work};
use std::collections::HashMap;

pub(crate) struct Space<'a> {
    pub(crate) kv: &'a mut KvManager,
    pub(crate) sequences: &'a HashMap<SeqKey, Sequence>,
    pub(crate) pace: Pace,
    /// Copies that the next step of a sequence must begin with, by sequence.
    pub(crate) copies: &'a mut Vec<(SeqKey, BlockCopy)>,
    /// Prompts that caught up with the cache, from where to where.
    pub(crate) caught_up: Vec<(SeqKey, u32, u32)>,
    pub(crate) loads: &'a Loads,
    /// The work of the step in flight behind which a step is planned.
    pub(crate) ahead: &'a [Work],
    /// Sessions and attempts, to find held sequences. `None`: no session has a full outbox.
    pub(crate) full: Option<(&'a Sessions, &'a Attempts)>,
    /// How often a session's outbox became full, or stopped being full.
    pub(crate) turns: u64,
    pub(crate) now: Time,
}

impl Space<'_> {
    /// Returns whether `work` already computes block `number` of the prompt for another prompt. Then both have it when
    /// that step has ended. The last token is no reason to wait, because each prompt computes its own.
    fn is_coming(&self, sequence: &Sequence, number: u32, work: &[Work]) -> bool {
        let size = self.pace.block_tokens;
        let wanted = sequence.chain.get(number as usize);
        let computes = |work: &&Work| work.start <= number * size && work.start + work.count >= (number + 1) * size;
        let chain = |work: &Work| self.sequences.get(&work.key).map(|sequence| &sequence.chain);
        let same = |work: &Work| chain(work).is_some_and(|chain| chain.get(number as usize) == wanted);
        (number + 1) * size < sequence.tokens.len() as u32 && work.iter().filter(computes).any(same)
    }
}

impl KvSpace for Space<'_> {
    fn open(&mut self, key: SeqKey, tokens: u32, before: Claim) -> Opened {
        // The last token of a prompt is computed in any case, unless the prompt is fetched.
        let (chain, tenant, leave) = match self.sequences.get(&key) {
            Some(sequence) => (&sequence.chain[..], sequence.scope.tenant(), u32::from(!sequence.fetching)),
            None => (&[][..], Tenant::UNKNOWN, 1),
        };
        let missing = tokens.saturating_sub(self.kv.cached_tokens(chain));
        if !before.is_none() && !self.kv.has_room(chain, missing, before) {
            return Opened::NoRoom;
        }
        match self.kv.open(key, tenant, chain, tokens, leave) {
            Admit::Ready { cached_tokens } => Opened::Ready { cached_tokens },
            Admit::NoRoom => Opened::NoRoom,
            Admit::Never => Opened::Never,
        }
    }

    fn has_room(&mut self, key: SeqKey, tokens: u32, before: Claim) -> bool {
        let chain = self.sequences.get(&key).map_or(&[][..], |sequence| &sequence.chain);
        let missing = tokens.saturating_sub(self.kv.cached_tokens(chain));
        // Whatever runs, is loaded or is fetched from another worker is open.
        let frees_room = !before.is_none() || self.kv.sequences_open() + self.kv.leases_live() > 0;
        !frees_room || self.kv.has_room(chain, missing, before)
    }

    fn given_back(&mut self) -> u64 {
        self.kv.given_back() + self.turns
    }

    fn reach(&mut self, key: SeqKey, mut computed: u32, work: &[Work]) -> Headway {
        let Some(sequence) = self.sequences.get(&key) else { return Headway { computed, until: u32::MAX } };
        let in_flight = self.ahead.iter().any(|work| work.key == key);
        if in_flight {
            // Its blocks are still written, so it cannot take others in their place before the step has ended.
            let next = (computed + 1..sequence.tokens.len() as u32)
                .contains(&(computed + self.pace.block_tokens))
                .then(|| sequence.chain.get((computed / self.pace.block_tokens) as usize));
            if next.flatten().is_some_and(|&block| self.kv.is_cached(block)) {
                return Headway { computed, until: computed };
            }
        } else if let Some(CaughtUp { tokens, copies }) =
            self.kv.catch_up(key, &sequence.chain, sequence.tokens.len() as u32)
        {
            self.copies.extend(copies.into_iter().map(|copy| (key, copy)));
            self.caught_up.push((key, computed, tokens));
            computed = tokens;
        }
        let number = computed / self.pace.block_tokens;
        let until = if self.is_coming(sequence, number, work) || self.is_coming(sequence, number, self.ahead) {
            computed
        } else {
            self.loads.compute_until(key, self.now, computed, self.pace).unwrap_or(u32::MAX)
        };
        Headway { computed, until }
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

    fn is_held(&self, key: SeqKey) -> bool {
        self.full.is_some_and(|(sessions, attempts)| attempts.is_held(sessions, key))
    }

    fn is_over(&self, key: SeqKey, known: u32) -> bool {
        self.sequences.get(&key).is_some_and(|sequence| sequence.tokens_max() <= known)
    }

    fn close(&mut self, key: SeqKey) {
        self.copies.retain(|&(copies_for, _)| copies_for != key);
        self.kv.close(key);
    }
}
