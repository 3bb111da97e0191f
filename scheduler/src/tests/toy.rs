//! Memory that counts blocks and nothing else.

use crate::{Admitted, Headway, Job, Kind, KvSpace, Opened, Schedule, Scheduler, Work};
use domain::{Choice, Claim, Epoch, RequestId, SeqKey, Time};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct ToyKv {
    pub(crate) block_tokens: u32,
    pub(crate) blocks: u32,
    /// Blocks that someone else holds for a while: leases.
    pub(crate) leased: u32,
    /// Leading tokens of every prompt that count as cached.
    pub(crate) cached_tokens: u32,
    pub(crate) open: BTreeMap<SeqKey, u32>,
    /// What comes to prompts from elsewhere, asked for it after another, in a cycle: blocks that are there beyond
    /// what was computed, and blocks that may be computed next.
    pub(crate) comes: Vec<(u32, u32)>,
    asked: usize,
    /// Tokens of each open prompt, and how far it was said to be last.
    pub(crate) prompts: BTreeMap<SeqKey, (u32, Headway)>,
    /// Prompts whose next chunk has no blocks yet: others are about to leave them.
    pub(crate) stuck: BTreeSet<SeqKey>,
    /// How often room was looked for.
    pub(crate) looked: u32,
    /// Sequences of which nobody takes what they made.
    pub(crate) held: BTreeSet<SeqKey>,
    /// Blocks that were free, and sequences that were held, when it was asked for last, and how often that changed.
    given_back: (u32, BTreeSet<SeqKey>, u64),
}

impl ToyKv {
    pub(crate) fn new(blocks: u32, block_tokens: u32) -> Self {
        Self {
            block_tokens,
            blocks,
            leased: 0,
            cached_tokens: 0,
            open: BTreeMap::new(),
            comes: vec![(0, u32::MAX)],
            asked: 0,
            prompts: BTreeMap::new(),
            stuck: BTreeSet::new(),
            looked: 0,
            held: BTreeSet::new(),
            given_back: (blocks, BTreeSet::new(), 0),
        }
    }

    /// Returns the tokens of the full blocks that leave one to compute.
    fn whole(&self, tokens: u32) -> u32 {
        (tokens - 1) / self.block_tokens * self.block_tokens
    }

    fn fits(&self, tokens: u32, before: Claim) -> bool {
        u64::from(tokens.div_ceil(self.block_tokens)) + before.tokens.div_ceil(self.block_tokens.into())
            <= self.free().into()
    }

    pub(crate) fn free(&self) -> u32 {
        self.blocks - self.leased - self.open.values().sum::<u32>()
    }
}

impl KvSpace for ToyKv {
    fn open(&mut self, key: SeqKey, tokens: u32, before: Claim) -> Opened {
        let need = tokens.div_ceil(self.block_tokens);
        if need > self.blocks {
            return Opened::Never;
        }
        self.looked += 1;
        if !self.fits(tokens, before) {
            return Opened::NoRoom;
        }
        assert!(self.open.insert(key, need).is_none(), "{key} opened twice");
        let computed = self.cached_tokens.min(self.whole(tokens));
        self.prompts.insert(key, (tokens, Headway { computed, until: u32::MAX }));
        Opened::Ready { cached_tokens: computed }
    }

    fn has_room(&mut self, _key: SeqKey, tokens: u32, before: Claim) -> bool {
        self.looked += 1;
        self.fits(tokens, before) || before.is_none() && self.open.is_empty() && self.leased == 0
    }

    fn given_back(&mut self) -> u64 {
        let (free, held, count) = &self.given_back;
        let count = count + u64::from((*free, held) != (self.free(), &self.held));
        self.given_back = (self.free(), self.held.clone(), count);
        count
    }

    fn is_held(&self, key: SeqKey) -> bool {
        self.held.contains(&key)
    }

    fn reach(&mut self, key: SeqKey, computed: u32, _work: &[Work]) -> Headway {
        let (blocks, ahead) = self.comes[self.asked % self.comes.len()];
        self.asked += 1;
        let (tokens, _) = self.prompts[&key];
        // Whole blocks are taken; a part of one is computed to its end.
        let whole = if computed.is_multiple_of(self.block_tokens) { blocks * self.block_tokens } else { 0 };
        let computed = (computed + whole).min(self.whole(tokens)).max(computed);
        let until = (computed / self.block_tokens).saturating_add(ahead).saturating_mul(self.block_tokens);
        let reach = Headway { computed, until };
        self.prompts.insert(key, (tokens, reach));
        reach
    }

    fn grow(&mut self, key: SeqKey, tokens: u32) -> bool {
        let need = tokens.div_ceil(self.block_tokens).saturating_sub(self.open[&key]);
        if need > self.free() || self.stuck.contains(&key) {
            return false;
        }
        *self.open.get_mut(&key).unwrap() += need;
        true
    }

    fn close(&mut self, key: SeqKey) {
        self.open.remove(&key).expect("closed what was not open");
    }
}

pub(crate) fn key(request: u64) -> SeqKey {
    SeqKey { request: RequestId(request), epoch: Epoch(1), choice: Choice(0) }
}

pub(crate) fn job(request: u64, tokens: u32) -> Job {
    Job { key: key(request), kind: Kind::Compute, tokens, samples: 1, arrived: Time(request) }
}

/// Gives room between steps to all who get some; what came of it, on one line: `r1(0) loads r2 never r3`. Loads
/// begin at once, and all but four tokens of the prompt come by them.
pub(crate) fn admit(scheduler: &mut Scheduler, kv: &mut ToyKv) -> String {
    let mut all = Vec::new();
    while let Some(admitted) = scheduler.admit(kv) {
        all.push(match admitted {
            Admitted::Load { job, .. } => {
                kv.open.insert(job.key, job.tokens.div_ceil(kv.block_tokens) - 1);
                scheduler.wait_for(job.key, Kind::Loading { tokens: kv.block_tokens });
                format!("loads r{}", job.key.request.0)
            }
            Admitted::TakeOver { key, cached_tokens } => format!("r{}({cached_tokens})", key.request.0),
            Admitted::Impossible(key) => format!("never r{}", key.request.0),
        });
    }
    all.join(" ")
}

/// Returns a schedule on one line: `r1[0..16] r2[16..20]+1 | admit r1(0) | preempt r3 | never r4`.
pub(crate) fn show(schedule: &Schedule) -> String {
    let names = |keys: &[SeqKey]| keys.iter().map(|key| format!("r{}", key.request.0)).collect::<Vec<_>>().join(" ");
    let work = schedule.work.iter().map(|work| {
        let sampled = if work.samples > 0 { format!("+{}", work.samples) } else { String::new() };
        format!("r{}[{}..{}]{sampled}", work.key.request.0, work.start, work.start + work.count)
    });
    let mut line = work.collect::<Vec<_>>().join(" ");
    if !schedule.admitted.is_empty() {
        let admitted = schedule.admitted.iter().map(|(key, cached)| format!("r{}({cached})", key.request.0));
        line += &format!(" | admit {}", admitted.collect::<Vec<_>>().join(" "));
    }
    if !schedule.preempted.is_empty() {
        line += &format!(" | preempt {}", names(&schedule.preempted));
    }
    if !schedule.impossible.is_empty() {
        line += &format!(" | never {}", names(&schedule.impossible));
    }
    line
}
