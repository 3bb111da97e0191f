//! A made-up trace of prompts: conversations that share system prompts and go on after pauses, and documents that
//! are sent once. Equal settings give equal traces on every machine.

use domain::{BlockHash, Tenant};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// Tokens of a block. Lengths are in blocks, since nothing else tells policies apart.
pub(super) const BLOCK_TOKENS: u32 = 16;
/// System prompts; the k-th is chosen half as often as the one before it, except the last.
const SYSTEM_PROMPTS: u32 = 12;
/// Lengths in blocks, from and to.
const SYSTEM_BLOCKS: (u32, u32) = (32, 128);
const QUESTION_BLOCKS: (u32, u32) = (2, 24);
const ANSWER_BLOCKS: (u32, u32) = (8, 32);
const SCAN_BLOCKS: (u32, u32) = (64, 512);
/// Turns of a conversation, from and to.
const TURNS: (u32, u32) = (1, 12);
/// The shortest pause between two turns. Half of the pauses are up to twice as long, a quarter up to four times,
/// and so on.
const PAUSE_MS: u64 = 10_000;
/// So often at most does a pause double: 85 minutes.
const DOUBLINGS_MAX: u32 = 9;
/// Odd, so that no two numbers become one. (The multiplier of a linear congruential generator of 128 bits: P.
/// L'Ecuyer, 1999.)
const SPREAD: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

/// A prompt and the answer to it.
pub(super) struct Turn {
    /// Number of the conversation, or of the document.
    pub(super) speaker: u64,
    /// Identities of the blocks of both.
    pub(super) chain: Vec<BlockHash>,
    /// Blocks of the prompt.
    pub(super) prompt: u32,
    /// Blocks of the prompt that were computed at some time before: what a cache without bounds would have.
    pub(super) known: u32,
}

impl Turn {
    /// Gives its blocks identities that no other tenant has.
    pub(super) fn belong_to(&mut self, tenant: Tenant) {
        self.chain.iter_mut().for_each(|hash| hash.0[12..].copy_from_slice(&tenant.0.to_le_bytes()));
    }
}

/// A conversation that goes on.
struct Conversation {
    speaker: u64,
    chain: Vec<BlockHash>,
    /// Blocks that it shares with others.
    system: u32,
    turns_left: u32,
}

/// The trace, without end.
pub(super) struct Trace {
    random: u64,
    /// Out of 100 prompts, documents that are never sent again.
    scans_percent: u64,
    names: u64,
    speakers: u64,
    /// Blocks of the conversations that go on, the shared ones counted once.
    working_set: u64,
    conversations: Vec<Conversation>,
    /// When which conversation has its next turn.
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    systems: Vec<u32>,
    systems_seen: HashSet<usize>,
}

impl Trace {
    /// Makes a trace of so many conversations at once.
    pub(super) fn new(seed: u64, conversations: usize, scans_percent: u64) -> Self {
        let mut trace = Self {
            random: seed,
            scans_percent,
            names: u64::from(SYSTEM_PROMPTS),
            speakers: 0,
            working_set: 0,
            conversations: Vec::new(),
            agenda: BinaryHeap::new(),
            systems: Vec::new(),
            systems_seen: HashSet::new(),
        };
        trace.systems = (0..SYSTEM_PROMPTS).map(|_| trace.length(SYSTEM_BLOCKS)).collect();
        trace.working_set = trace.systems.iter().map(|&blocks| u64::from(blocks)).sum();
        for slot in 0..conversations {
            let conversation = trace.begin();
            trace.conversations.push(conversation);
            let at = trace.pause();
            trace.agenda.push(Reverse((at, slot)));
        }
        trace
    }

    /// Returns the number of blocks of the conversations that go on now, and of the system prompts.
    pub(super) fn working_set(&self) -> u64 {
        self.working_set
    }

    /// Draws a number by SplitMix64 (Steele, Lea and Flood, 2014).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn length(&mut self, (from, to): (u32, u32)) -> u32 {
        from + (self.draw() % u64::from(to - from + 1)) as u32
    }

    fn pause(&mut self) -> u64 {
        let doublings = self.draw().trailing_zeros().min(DOUBLINGS_MAX);
        let shortest = PAUSE_MS << doublings;
        shortest + self.draw() % shortest
    }

    fn begin(&mut self) -> Conversation {
        self.speakers += 1;
        let system = (self.draw().trailing_zeros() as usize).min(self.systems.len() - 1);
        let mut conversation =
            Conversation { speaker: self.speakers, chain: Vec::new(), system: self.systems[system], turns_left: 0 };
        extend(&mut conversation.chain, system as u64, conversation.system);
        conversation.turns_left = self.length(TURNS);
        conversation
    }

    fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    fn scan(&mut self) -> Turn {
        let (name, prompt, answer) = (self.name(), self.length(SCAN_BLOCKS), self.length(ANSWER_BLOCKS));
        let mut chain = Vec::new();
        extend(&mut chain, name, prompt + answer);
        Turn { speaker: name, chain, prompt, known: 0 }
    }

    fn turn(&mut self) -> Turn {
        let Reverse((now, slot)) = self.agenda.pop().expect("every conversation has a next turn");
        let (name, question, answer) = (self.name(), self.length(QUESTION_BLOCKS), self.length(ANSWER_BLOCKS));
        let conversation = &mut self.conversations[slot];
        let is_first = conversation.chain.len() == conversation.system as usize;
        let system = conversation.chain[0].0[0].into();
        let known = if is_first && self.systems_seen.insert(system) { 0 } else { conversation.chain.len() as u32 };
        let prompt = conversation.chain.len() as u32 + question;
        extend(&mut conversation.chain, name, question + answer);
        let turn = Turn { speaker: conversation.speaker, chain: conversation.chain.clone(), prompt, known };
        self.working_set += u64::from(question + answer);
        conversation.turns_left -= 1;
        if conversation.turns_left == 0 {
            self.working_set -= u64::from(turn.chain.len() as u32 - conversation.system);
            self.conversations[slot] = self.begin();
        }
        let next = now + self.pause();
        self.agenda.push(Reverse((next, slot)));
        turn
    }
}

impl Iterator for Trace {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        let is_scan = self.draw() % 100 < self.scans_percent;
        Some(if is_scan { self.scan() } else { self.turn() })
    }
}

/// Adds the identities of `blocks` blocks of a text that has this name: no two have the same, and each of their
/// bytes differs between blocks, as those of digests do.
fn extend(chain: &mut Vec<BlockHash>, name: u64, blocks: u32) {
    let identity = |number: u32| {
        let spread = (u128::from(name) | u128::from(number) << 64).wrapping_mul(SPREAD);
        BlockHash((spread ^ spread >> 64).to_le_bytes())
    };
    chain.extend((0..blocks).map(identity));
}
