//! Random runs against a world that remembers: the memory of every block as steps, copies and fetches would leave
//! it, what each sequence's tokens are, what each lease promised, what is pinned, and what every place of the
//! tiers holds. Steps run late, behind the planning, as on a device.

mod pins;
mod router_reports;
mod tiers;

use super::*;
use crate::tiers::{Tier, TierConfig, WritePolicy};
use domain::{BlockLink, Generation, LeaseId, Scope, ScopeParts, Token};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

/// What a position holds: a digest of all tokens up to it. Zero: nothing that anyone should read.
type Tag = u64;

const SLOTS: usize = 5;
const LEASES_TRACKED: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Open {
        slot: usize,
        split: u32,
        tokens: u32,
        fetch: bool,
    },
    Plan {
        slot: usize,
        tokens: u32,
        sample: Token,
    },
    Run,
    CatchUp {
        slot: usize,
    },
    Validate {
        slot: usize,
    },
    Fork {
        parent: usize,
        child: usize,
    },
    Close {
        slot: usize,
    },
    Offer {
        slot: usize,
        written_only: bool,
        duration: u64,
        until: u64,
    },
    Renew {
        lease: usize,
        ticks: u64,
    },
    Release {
        lease: usize,
    },
    Ack {
        lease: usize,
    },
    Withdraw {
        lease: usize,
    },
    Pass {
        time: u64,
    },
    StandStill {
        pause: u64,
    },
    Flush,
    Report,
    /// The device hears what changed of the tables, or all of them.
    Tell {
        slot: usize,
        all: bool,
    },
    Pins(pins::Op),
    Tier(tiers::Op),
}

fn op() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let lease = || 0..LEASES_TRACKED;
    prop_oneof![
        6 => (slot(), 0..12u32, 1..30u32, any::<bool>())
            .prop_map(|(slot, split, tokens, fetch)| Op::Open { slot, split, tokens, fetch }),
        12 => (slot(), 1..9u32, 0..2u32).prop_map(|(slot, tokens, sample)| Op::Plan { slot, tokens, sample }),
        10 => Just(Op::Run),
        5 => slot().prop_map(|slot| Op::CatchUp { slot }),
        3 => slot().prop_map(|slot| Op::Validate { slot }),
        3 => (slot(), slot()).prop_map(|(parent, child)| Op::Fork { parent, child }),
        5 => slot().prop_map(|slot| Op::Close { slot }),
        5 => (slot(), any::<bool>(), 1..20u64, 1..40u64)
            .prop_map(|(slot, written_only, duration, until)| Op::Offer { slot, written_only, duration, until }),
        2 => (lease(), 0..4u64).prop_map(|(lease, ticks)| Op::Renew { lease, ticks }),
        3 => lease().prop_map(|lease| Op::Release { lease }),
        1 => lease().prop_map(|lease| Op::Ack { lease }),
        1 => lease().prop_map(|lease| Op::Withdraw { lease }),
        3 => (0..8u64).prop_map(|time| Op::Pass { time }),
        1 => (0..30u64).prop_map(|pause| Op::StandStill { pause }),
        1 => Just(Op::Flush),
        1 => Just(Op::Report),
        8 => (slot(), prop::bool::weighted(0.1)).prop_map(|(slot, all)| Op::Tell { slot, all }),
        3 => pins::op().prop_map(Op::Pins),
        16 => tiers::op().prop_map(Op::Tier),
    ]
}

fn configs() -> impl Strategy<Value = (KvConfig, Vec<(Tier, TierConfig)>)> {
    let groups = prop_oneof![
        Just(vec![None]),
        Just(vec![Some(6)]),
        Just(vec![None, Some(5)]),
        Just(vec![Some(1), None, Some(9)]),
        Just(vec![Some(3), Some(8)]),
    ];
    let policies = prop::sample::select(vec![EvictionPolicy::Lru, EvictionPolicy::S3Fifo, EvictionPolicy::Tree]);
    let write = prop::sample::select(vec![WritePolicy::Through, WritePolicy::SecondUse, WritePolicy::Back]);
    let tier = || prop::option::of((0..30u32, 1..4usize, 1..9usize, write.clone()));
    let watermarks = (0..=100u32, 0..=100u32)
        .prop_map(|(one, other)| Watermarks { high_percent: one.max(other), low_percent: one.min(other) });
    let tiers = [tier(), tier(), tier(), tier()];
    let percent = || prop_oneof![Just(100), 0..100u32];
    let quotas = (percent(), percent(), percent(), percent()).prop_map(
        |(device_percent, host_percent, disk_percent, object_percent)| Quotas {
            device_percent,
            host_percent,
            disk_percent,
            object_percent,
        },
    );
    let shares = (0..=100u32, prop::option::of(1..30u64), quotas);
    (groups, policies, watermarks, shares, (1..5u32, 1..4u32), 4..24u32, 0..3u32, tiers).prop_map(
        |(
            windows,
            eviction,
            watermarks,
            (pinned_percent, park_after, quotas),
            (block_tokens, chunk_blocks),
            blocks,
            reserve_blocks,
            tiers,
        )| {
            let group = |(n, window)| GroupConfig { blocks: blocks + n, reserve_blocks, window };
            let sized = |(tier, sizes)| {
                let (slots, writes_max, backlog_max, write) = sizes?;
                let slots = windows.iter().map(|_| slots).collect();
                let write = if tier == Tier::Neighbours { WritePolicy::Never } else { write };
                Some((tier, TierConfig { slots, writes_max, backlog_max, write }))
            };
            let tiers = Tier::ALL.into_iter().zip(tiers).filter_map(sized).collect();
            let config = KvConfig {
                block_tokens,
                chunk_tokens: chunk_blocks * block_tokens,
                groups: (0..).zip(windows).map(group).collect(),
                eviction,
                watermarks,
                pinned_percent,
                quotas,
                park_after: park_after.map(Duration::from_nanos),
                answers_max: 2,
                leases_max: 4,
            };
            (config, tiers)
        },
    )
}

/// An open sequence.
struct Stream {
    key: SeqKey,
    tokens: Vec<Token>,
    /// Positions below this are in steps planned; what runs late is behind.
    planned: u32,
    written: u32,
    /// A fetch's destination that was not validated.
    fetching: bool,
    /// Copies that its next step begins with.
    copies: Vec<BlockCopy>,
}

/// A step that was planned and has not run.
struct Step {
    key: SeqKey,
    copies: Vec<BlockCopy>,
    tables: Vec<BlockTable>,
    tokens: Vec<Token>,
    from: u32,
    to: u32,
}

/// A lease as its reader and its owner should see it.
struct Held {
    id: LeaseId,
    key: SeqKey,
    tokens: Vec<Token>,
    ready: u32,
    /// A copy into its blocks is in a step that writes up to here.
    copied_until: u32,
    groups: Vec<OfferedGroup>,
    duration: u64,
    until: u64,
    expiry: u64,
    ticks: Option<u64>,
    live: bool,
}

struct World {
    config: KvConfig,
    kv: KvManager,
    scope: Scope,
    now: u64,
    epochs: u32,
    /// By group, block and offset.
    memory: Vec<Vec<Vec<Tag>>>,
    generations: Vec<Vec<Generation>>,
    slots: [Option<Stream>; SLOTS],
    steps: VecDeque<Step>,
    leases: Vec<Held>,
    /// Valid answers, oldest first.
    answers: Vec<LeaseId>,
    /// Of each block that a sequence had, which one it continues.
    parents: RefCell<BTreeMap<BlockHash, Option<BlockHash>>>,
    /// Where each identity is, as routers hear it.
    told: router_reports::Reported,
    /// What a device knows of the tables of each sequence.
    device: BTreeMap<SeqKey, Vec<BlockTable>>,
    pins: pins::Pins,
    below: tiers::Below,
    refused: Option<Refused>,
}

/// What found no room last.
struct Refused {
    chain: Vec<BlockHash>,
    tokens: u32,
    fetch: bool,
    /// The fewest blocks of it that were cached since.
    hit: u32,
    given_back: u64,
}

/// Prompts agree up to the split, and then differ by where it was: long shared prefixes are common.
fn prompt(split: u32, tokens: u32) -> Vec<Token> {
    (0..tokens).map(|n| if n < split { 7 } else { 100 + split }).collect()
}

fn tags(tokens: &[Token]) -> Vec<Tag> {
    let fold = |tag: &mut Tag, token: &Token| {
        *tag = (*tag ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3) | 1;
        Some(*tag)
    };
    tokens.iter().scan(0xcbf2_9ce4_8422_2325, fold).collect()
}

impl World {
    fn new((config, tiers): (KvConfig, Vec<(Tier, TierConfig)>)) -> Self {
        let mut kv = KvManager::new(config.clone());
        tiers.into_iter().for_each(|(tier, config)| kv.add_tier(tier, config, &[]));
        let size = config.block_tokens as usize;
        Self {
            kv,
            scope: Scope::derive(&ScopeParts { weights: [0; 32], layout: 0, adapter: None, tenant: "" }),
            now: 0,
            epochs: 0,
            memory: config.groups.iter().map(|group| vec![vec![0; size]; group.blocks as usize]).collect(),
            generations: config.groups.iter().map(|group| vec![Generation(0); group.blocks as usize]).collect(),
            slots: [const { None }; SLOTS],
            steps: VecDeque::new(),
            leases: Vec::new(),
            answers: Vec::new(),
            parents: RefCell::default(),
            told: router_reports::Reported::new(),
            device: BTreeMap::new(),
            pins: pins::Pins::default(),
            below: tiers::Below::new(config.groups.len()),
            refused: None,
            config,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Open { slot, split, tokens, fetch } => self.open(slot, split, tokens, fetch),
            Op::Plan { slot, tokens, sample } => self.plan(slot, tokens, sample),
            Op::Run => self.run(),
            Op::CatchUp { slot } => self.catch_up(slot),
            Op::Validate { slot } => {
                if let Some(stream) = self.slots[slot].as_mut().filter(|stream| stream.fetching) {
                    stream.fetching = false;
                    let (key, tokens) = (stream.key, stream.tokens.len() as u32);
                    self.written(key, tokens);
                }
            }
            Op::Fork { parent, child } => self.fork(parent, child),
            Op::Close { slot } => self.close(slot),
            Op::Offer { slot, written_only, duration, until } => self.offer(slot, written_only, duration, until),
            Op::Renew { lease, ticks } => self.renew(lease, ticks),
            Op::Release { lease } => self.release(lease),
            Op::Ack { lease } => {
                if let Some(held) = self.leases.get(lease) {
                    self.kv.ack(held.id);
                    self.answers.retain(|answered| *answered != held.id);
                }
            }
            Op::Withdraw { lease } => {
                if let Some(held) = self.leases.get_mut(lease) {
                    held.live = false;
                    self.kv.withdraw(held.id);
                }
            }
            Op::Pass { time } => self.pass(time),
            Op::StandStill { pause } => {
                self.kv.stood_still(Duration::from_nanos(pause));
                for held in &mut self.leases {
                    (held.expiry, held.until) = (held.expiry + pause, held.until + pause);
                }
                self.pass(pause);
            }
            Op::Flush => {
                self.kv.flush();
                assert!(self.kv.stats().iter().all(|stats| stats.evictable == 0));
            }
            Op::Report => {
                self.hear();
                self.check_told();
            }
            Op::Tell { slot, all } => self.tell(slot, all),
            Op::Pins(op) => self.pins(op),
            Op::Tier(op) => self.tier(op),
        }
        self.check();
    }

    fn open(&mut self, slot: usize, split: u32, tokens: u32, fetch: bool) {
        if self.slots[slot].is_some() {
            return;
        }
        let tokens = prompt(split, tokens);
        let chain = self.chain(&tokens);
        let total = tokens.len() as u32;
        let (hit, expected) = self.expected_admit(&chain, total, fetch);
        let before = self.kv.stats();
        let generations = self.generations.clone();
        self.epochs += 1;
        let key = SeqKey { epoch: Epoch(self.epochs), ..key(slot as u64) };
        // A tenant for each two of them or so; identities are shared here, which is more than there is elsewhere.
        let tenant = Tenant(slot as u32 / 2);
        let admit = self.kv.open(key, tenant, &chain, total, u32::from(!fetch));
        assert_eq!(admit, expected);
        if !matches!(admit, Admit::Ready { .. }) {
            assert_eq!(self.kv.stats(), before, "a refusal takes something");
            let given_back = self.kv.given_back();
            self.refused = (admit == Admit::NoRoom).then_some(Refused { chain, tokens: total, fetch, hit, given_back });
            return;
        }
        let cached = hit * self.config.block_tokens;
        for (group, table) in self.kv.tables(key).iter().enumerate() {
            for (number, block) in (table.first..).zip(&table.blocks) {
                let last = generations[group][block.0 as usize];
                let now = self.kv.pools[group].generation(*block);
                assert_eq!(now, Generation(last.0 + u64::from(number >= hit)), "generation of a block of {key}");
            }
        }
        self.slots[slot] = Some(Stream {
            key,
            tokens,
            planned: cached,
            written: cached,
            fetching: fetch && cached < total,
            copies: vec![],
        });
        self.expect_memory(slot, if fetch { total } else { cached }, cached);
        if fetch {
            // Reads land at once, whatever steps are still to run.
            let stream = self.slots[slot].as_mut().expect("it was just opened");
            stream.planned = total;
            let tables = self.kv.tables(key);
            let tokens = self.slots[slot].as_ref().expect("it was just opened").tokens.clone();
            self.write(&tables, &tokens, cached, total);
        }
    }

    /// Returns what opening should answer, by trying every length of prefix and counting every block.
    fn expected_admit(&self, chain: &[BlockHash], tokens: u32, fetch: bool) -> (u32, Admit) {
        let size = self.config.block_tokens;
        let blocks = tokens.div_ceil(size);
        let first = |group: usize, query: u32| match self.config.groups[group].window {
            Some(window) => ((query + 1).saturating_sub(window) / size).min(blocks),
            None => 0,
        };
        let groups = self.config.groups.len();
        let query = |hit: u32| if fetch { tokens } else { hit * size };
        let block = |group: usize, n: u32| self.kv.index.get(GroupId(group as u16), chain[n as usize]);
        let holds = |hit: u32| {
            (0..groups).all(|group| (first(group, query(hit))..hit).all(|n| block(group, n).is_some()))
                && (0..groups).any(|group| first(group, query(hit)) < hit)
        };
        let limit = if fetch { tokens / size } else { (tokens - 1) / size };
        let hit = (1..=limit).rev().find(|&hit| holds(hit)).unwrap_or(0);

        let alone = self.slots.iter().all(Option::is_none) && self.below.is_idle();
        let stats = self.kv.stats();
        let fits = (0..groups).all(|group| {
            let first = first(group, query(hit));
            let idle = (first..hit)
                .filter(|&n| self.kv.pools[group].is_evictable(block(group, n).expect("the prefix is held")));
            let idle = idle.count() as u32;
            let gap = if fetch { 0 } else { self.expected_gap(group, first, tokens, hit) };
            let fresh = blocks - hit.max(first) - gap;
            let used = |&n: &u32| self.kv.pools[group].is_used(block(group, n).expect("the prefix is held"));
            let others = if gap > 0 { (first..hit).filter(used).count() as u32 } else { 0 };
            let chunk = self.config.chunk_tokens / size;
            let promise = if gap > 0 { gap.min(self.span(group).saturating_sub(chunk + idle)) } else { 0 };
            let takes = idle + fresh + others + promise;
            let reserve = if alone { 0 } else { self.config.groups[group].reserve_blocks };
            takes == 0
                || takes + reserve + self.expected_promised(group, gap > 0)
                    <= stats[group].free + stats[group].evictable
        });
        let possible = (0..groups).all(|group| {
            let window = self.config.groups[group].window.map(|window| (window - 1).div_ceil(size) + 1);
            let whole = window.map_or(blocks, |window| blocks.min(self.span(group) + window));
            (if fetch { blocks - first(group, tokens) } else { whole }) <= self.config.groups[group].blocks
        });
        match (fits, possible) {
            (true, _) => (hit, Admit::Ready { cached_tokens: hit * size }),
            (false, true) => (hit, Admit::NoRoom),
            (false, false) => (hit, Admit::Never),
        }
    }

    /// Blocks of the group that a prompt has at once next to those of its last window.
    fn span(&self, group: usize) -> u32 {
        let size = self.config.block_tokens;
        let window = self.config.groups[group].window.map(|window| (window - 1).div_ceil(size) + 1);
        window.map_or(u32::MAX, |window| window + self.config.chunk_tokens / size)
    }

    fn first_of_last_window(&self, group: usize, tokens: u32) -> u32 {
        let window = self.config.groups[group].window;
        window.map_or(0, |window| (tokens + 1).saturating_sub(window) / self.config.block_tokens)
    }

    /// Blocks of a prompt that it does not take at once: those behind its first chunk that are not of its last window.
    fn expected_gap(&self, group: usize, first: u32, tokens: u32, hit: u32) -> u32 {
        let last = self.first_of_last_window(group, tokens);
        let is_long = last.saturating_sub(first) > self.span(group);
        if is_long { last - hit - self.config.chunk_tokens / self.config.block_tokens } else { 0 }
    }

    /// Blocks that open prompts will take before they give others back, and those that pins may name until then.
    fn expected_promised(&self, group: usize, opens_another: bool) -> u32 {
        let pool = &self.kv.pools[group];
        let (mut promised, mut prompts) = (0, u32::from(opens_another));
        for sequence in self.kv.sequences.values() {
            let table = &sequence.tables[group];
            let gap = sequence.blocks - sequence.ends[group].len() as u32 - table.first - table.blocks.len() as u32;
            let back = table.blocks.iter().filter(|&&block| pool.is_sole(block)).count() as u32;
            prompts += u32::from(gap > 0);
            promised += gap.min(self.span(group).saturating_sub(back));
        }
        let pins = self.config.groups[group].blocks * self.config.pinned_percent / 100;
        if prompts == 0 { 0 } else { promised + pins.saturating_sub(pool.pinned()) }
    }

    fn plan(&mut self, slot: usize, tokens: u32, sample: Token) {
        let Some(stream) = self.slots[slot].as_mut().filter(|stream| !stream.fetching) else { return };
        let left = stream.tokens.len() as u32 - stream.planned;
        if left == 0 {
            stream.tokens.push(sample);
        }
        let (key, from) = (stream.key, stream.planned);
        let to = from + tokens.min(left.max(1));
        let before = self.kv.stats();
        match self.kv.grow(key, to) {
            Grow::NoRoom => {
                assert_eq!(self.kv.stats(), before, "a refusal takes something");
                if left == 0 {
                    stream.tokens.pop();
                }
            }
            Grow::Ready(copies) => {
                stream.planned = to;
                for held in self.leases.iter_mut().filter(|held| held.key == key) {
                    // A copied block whose promised positions no step was to write yet: they will be elsewhere.
                    held.live &= !copies.iter().any(|copy| {
                        let offered = &held.groups[at(copy.group)];
                        let place = offered.blocks.iter().position(|&(block, _)| block == copy.from);
                        place.is_some_and(|place| {
                            let start = (offered.first + place as u32) * self.config.block_tokens;
                            held.tokens.len() as u32 > from.max(start)
                        })
                    });
                }
                let tokens = stream.tokens[..to as usize].to_vec();
                let copies = stream.copies.drain(..).chain(copies).collect();
                self.steps.push_back(Step { key, copies, tables: self.kv.tables(key), tokens, from, to });
            }
        }
    }

    fn run(&mut self) {
        let Some(step) = self.steps.pop_front() else { return };
        for copy in step.copies {
            let memory = &mut self.memory[at(copy.group)];
            memory[copy.to.0 as usize] = memory[copy.from.0 as usize].clone();
        }
        self.expect_tables(&step.tables, &step.tokens, step.from, step.from);
        self.write(&step.tables, &step.tokens, step.from, step.to);
        self.written(step.key, step.to);
    }

    fn fork(&mut self, parent: usize, child: usize) {
        let Some(stream) = self.slots[parent].as_ref().filter(|stream| !stream.fetching) else { return };
        let planned = self.steps.iter().any(|step| step.key == stream.key && !step.copies.is_empty());
        let copies = planned || !stream.copies.is_empty();
        if self.slots[child].is_some() || copies {
            return;
        }
        self.epochs += 1;
        let key = SeqKey { epoch: Epoch(self.epochs), ..stream.key };
        self.kv.fork(stream.key, key);
        // What the parent has only planned, the child computes for itself.
        let (tokens, written) = (stream.tokens.clone(), stream.written);
        self.slots[child] = Some(Stream { key, tokens, planned: written, written, fetching: false, copies: vec![] });
    }

    fn catch_up(&mut self, slot: usize) {
        let Some(stream) = self.slots[slot].as_ref().filter(|stream| !stream.fetching) else { return };
        if self.steps.iter().any(|step| step.key == stream.key) {
            return;
        }
        let (key, tokens, written) = (stream.key, stream.tokens.len() as u32, stream.written);
        let chain = self.chain(&stream.tokens);
        let (expected, copying) = (self.expected_catch_up(stream, &chain), !stream.copies.is_empty());
        let (before, tables) = (self.kv.stats(), self.kv.tables(key));
        let Some(CaughtUp { tokens: hit, copies }) = self.kv.catch_up(key, &chain, tokens) else {
            // A block that was promised, and that somebody shares or froze, cannot be filled, and one that will be
            // is not dropped.
            let promised = self.leases.iter().any(|held| held.live && held.key == key);
            assert!(expected.is_none() || promised || copying, "{key} could have gone on at {expected:?}");
            assert_eq!((self.kv.stats(), self.kv.tables(key)), (before, tables), "a refusal takes something");
            return;
        };
        assert_eq!(Some(hit), expected, "{key} goes on from {written}");
        let after = self.kv.stats();
        assert!(before.iter().zip(&after).all(|(before, after)| after.filling <= before.filling), "blocks are taken");
        let stream = self.slots[slot].as_mut().expect("it was just looked at");
        (stream.planned, stream.written) = (hit, hit);
        stream.copies.extend(copies);
        if self.slots[slot].as_ref().is_some_and(|stream| stream.copies.is_empty()) {
            self.expect_memory(slot, hit, hit);
        }
    }

    /// Where a sequence should be able to go on, by trying every block.
    fn expected_catch_up(&self, stream: &Stream, chain: &[BlockHash]) -> Option<u32> {
        let size = self.config.block_tokens;
        let (written, tokens) = (stream.written, stream.tokens.len() as u32);
        if !written.is_multiple_of(size) || tokens <= written {
            return None;
        }
        let own = self.leases.iter().filter(|held| held.live && held.key == stream.key);
        let offers = own.map(|held| held.tokens.len() as u32).filter(|&offered| offered > written);
        let limit = offers.map(|offered| offered / size).min().unwrap_or(u32::MAX).min((tokens - 1) / size);
        let tables = self.kv.tables(stream.key);
        let has = |group: usize, n: u32| match n < written / size {
            true => n >= tables[group].first,
            false => self.kv.index.get(GroupId(group as u16), chain[n as usize]).is_some(),
        };
        let needed = |group: usize, end: u32| self.config.groups[group].first_needed(end * size, size)..end;
        let groups = 0..self.config.groups.len();
        let holds = |end: &u32| {
            groups.clone().all(|group| needed(group, *end).all(|n| has(group, n)))
                && groups.clone().any(|group| !needed(group, *end).is_empty())
        };
        (written / size + 1..=limit).rev().find(holds).map(|end| end * size)
    }

    fn close(&mut self, slot: usize) {
        let Some(key) = self.slots[slot].as_ref().map(|stream| stream.key) else { return };
        while self.steps.iter().any(|step| step.key == key) {
            self.run();
        }
        self.slots[slot] = None;
        self.kv.close(key);
        self.kv.close(key);
    }

    /// A device that is told only what changed knows all tables.
    fn tell(&mut self, slot: usize, all: bool) {
        let Some(key) = self.slots[slot].as_ref().map(|stream| stream.key) else { return };
        if all {
            self.kv.tell_all(key);
            self.device.remove(&key);
        }
        let groups = self.config.groups.len();
        let known = self.device.entry(key).or_insert_with(|| vec![BlockTable::default(); groups]);
        for (group, change) in self.kv.changes(key) {
            let table = &mut known[at(group)];
            let kept = table.kept(&change).expect("what stays is known");
            table.change(&change, kept);
        }
        assert_eq!(*known, self.kv.tables(key), "what the device knows of {key}");
        assert_eq!(self.kv.changes(key).count(), 0, "nothing changed since");
    }

    fn offer(&mut self, slot: usize, written_only: bool, duration: u64, until: u64) {
        let Some(stream) = &self.slots[slot] else { return };
        // Slots reach beyond what is known of the tokens only within the last block.
        let covered = self.kv.sequences[&stream.key].blocks * self.config.block_tokens;
        let known = (stream.tokens.len() as u32).min(covered);
        let tokens = if written_only { stream.written } else { known };
        if self.leases.len() == LEASES_TRACKED {
            let Some(ended) = self.leases.iter().position(|held| !held.live) else { return };
            self.leases.remove(ended);
        }
        let live = self.leases.iter().filter(|held| held.live).count();
        let until = self.now + until;
        let parts = self.kv.offer(Time(self.now), stream.key, tokens, Duration::from_nanos(duration), Time(until));
        assert_eq!(parts.is_some(), live < self.config.leases_max && !stream.fetching);
        let Some(parts) = parts else { return };
        // A copy that is still to be made holds the blocks back that it fills, and none other.
        let copying = self.steps.iter().filter(|step| step.key == stream.key && !step.copies.is_empty());
        let size = self.config.block_tokens;
        let start = |tables: &[BlockTable], copy: &BlockCopy| {
            let table = &tables[at(copy.group)];
            let place = table.blocks.iter().position(|&block| block == copy.to).expect("the copy is in the table");
            (table.first + place as u32) * size
        };
        let tables = self.kv.tables(stream.key);
        let starts = copying.clone().flat_map(|step| step.copies.iter().map(|copy| start(&step.tables, copy)));
        let starts = starts.chain(stream.copies.iter().map(|copy| start(&tables, copy)));
        assert_eq!(parts.ready, starts.fold(stream.written, u32::min).min(tokens));
        let caught_up = if stream.copies.is_empty() { 0 } else { stream.written + 1 };
        let copied_until = copying.map(|step| step.to).max().unwrap_or(0).max(caught_up);
        self.leases.push(Held {
            id: parts.lease,
            key: stream.key,
            tokens: stream.tokens[..tokens as usize].to_vec(),
            ready: parts.ready,
            copied_until,
            groups: parts.groups,
            duration,
            until,
            expiry: (self.now + duration).min(until),
            ticks: None,
            live: true,
        });
    }

    fn renew(&mut self, lease: usize, ticks: u64) {
        let Some(held) = self.leases.get_mut(lease) else { return };
        let alive = held.live && self.now < held.expiry;
        assert_eq!(self.kv.renew(Time(self.now), held.id, ticks), alive);
        if alive && held.ticks.is_none_or(|last| ticks > last) {
            held.ticks = Some(ticks);
            held.expiry = (self.now + held.duration).min(held.until);
        }
    }

    fn release(&mut self, lease: usize) {
        let Some(held) = self.leases.get_mut(lease) else { return };
        let in_time = held.live && self.now < held.expiry;
        if in_time {
            held.live = false;
            if held.ready == held.tokens.len() as u32 {
                self.answers.push(held.id);
                if self.answers.len() > self.config.answers_max {
                    self.answers.remove(0);
                }
            }
        }
        assert_eq!(self.kv.release(Time(self.now), held.id), self.answers.contains(&held.id));
        assert_eq!(self.kv.was_valid(held.id), self.answers.contains(&held.id));
    }

    fn pass(&mut self, time: u64) {
        let before = self.now;
        self.now += time;
        let now = self.now;
        let mut lapsed: Vec<(u64, LeaseId)> = Vec::new();
        for held in self.leases.iter_mut().filter(|held| held.live && held.expiry <= now) {
            held.live = false;
            lapsed.push((held.expiry, held.id));
        }
        lapsed.sort_unstable();
        assert_eq!(self.kv.expire(Time(now)), lapsed.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
        self.pins_lapse();
        // The pools are told of the time last: what lapsed just now could be given up since the time before, to them.
        self.check_idle(before);
        self.park_idle();
    }

    fn written(&mut self, key: SeqKey, tokens: u32) {
        let stream =
            self.slots.iter_mut().flatten().find(|stream| stream.key == key).expect("steps end before streams");
        stream.written = tokens;
        let known = stream.tokens.clone();
        for held in self.leases.iter_mut().filter(|held| held.key == key && tokens >= held.copied_until) {
            held.ready = held.ready.max(tokens.min(held.tokens.len() as u32));
        }
        self.kv.written(key, tokens, &self.chain(&known));
    }

    /// Everything that must hold between any two calls.
    fn check(&mut self) {
        self.kv.check();
        for (group, generations) in self.generations.iter_mut().enumerate() {
            for (block, seen) in (0..).map(BlockId).zip(generations) {
                let now = self.kv.pools[group].generation(block);
                assert!(now >= *seen, "the generation of {block} fell");
                *seen = now;
            }
        }
        let size = self.config.block_tokens;
        for held in self.leases.iter().filter(|held| held.live) {
            for (group, offered) in held.groups.iter().enumerate() {
                for (number, &(block, generation)) in (offered.first..).zip(&offered.blocks) {
                    assert_eq!(self.kv.pools[group].generation(block), generation, "reused under a live lease");
                    let ready = (number * size).min(held.ready)..((number + 1) * size).min(held.ready);
                    for (position, tag) in (0..).zip(tags(&held.tokens)).filter(|(p, _)| ready.contains(p)) {
                        let found = self.memory[group][block.0 as usize][(position % size) as usize];
                        assert_eq!(found, tag, "position {position} under {}", held.id);
                    }
                }
            }
        }
        let deadline = self.leases.iter().filter(|held| held.live).map(|held| Time(held.expiry)).min();
        assert_eq!(self.kv.next_deadline(), deadline);
        self.check_pins();
        self.check_lifts();
        self.check_idle(self.now);
        self.check_refused();
    }

    /// As long as nothing was given back, and no more of it is cached than at any time since, what found no room finds
    /// none. What went and is back may be a block that somebody uses.
    fn check_refused(&mut self) {
        let given_back = self.kv.given_back();
        let Some(mut refused) = self.refused.take_if(|refused| refused.given_back == given_back) else { return };
        let (hit, admit) = self.expected_admit(&refused.chain, refused.tokens, refused.fetch);
        assert!(admit == Admit::NoRoom || hit > refused.hit, "there is room that nobody was told of");
        refused.hit = refused.hit.min(hit);
        self.refused = Some(refused);
    }

    fn chain(&self, tokens: &[Token]) -> Vec<BlockHash> {
        let mut chain = Vec::new();
        self.scope.extend_chain(&mut chain, tokens, self.config.block_tokens);
        self.parents.borrow_mut().extend(BlockLink::run(None, &chain).map(|link| (link.hash, link.parent)));
        chain
    }

    fn write(&mut self, tables: &[BlockTable], tokens: &[Token], from: u32, to: u32) {
        let size = self.config.block_tokens;
        let tags = tags(tokens);
        for (memory, table) in self.memory.iter_mut().zip(tables) {
            for position in from.max(table.first * size)..to {
                let block = table.blocks[(position / size - table.first) as usize];
                memory[block.0 as usize][(position % size) as usize] = tags[position as usize];
            }
        }
    }

    /// The positions below `end` that a query at `query` attends to are in memory where the sequence's tables say.
    fn expect_memory(&self, slot: usize, query: u32, end: u32) {
        let stream = self.slots[slot].as_ref().expect("the sequence is open");
        self.expect_tables(&self.kv.tables(stream.key), &stream.tokens, query, end);
    }

    fn expect_tables(&self, tables: &[BlockTable], tokens: &[Token], query: u32, end: u32) {
        let size = self.config.block_tokens;
        let tags = tags(tokens);
        for ((memory, table), group) in self.memory.iter().zip(tables).zip(&self.config.groups) {
            for position in group.window.map_or(0, |window| (query + 1).saturating_sub(window))..end {
                let block = table.blocks[(position / size - table.first) as usize];
                let found = memory[block.0 as usize][(position % size) as usize];
                assert_eq!(found, tags[position as usize], "position {position} in {block}");
            }
        }
    }

    /// Ends everything: nothing may be left that is neither free nor cached, and a flush frees the rest.
    fn end(mut self) {
        (0..SLOTS).for_each(|slot| self.close(slot));
        self.end_moves();
        self.pass(u64::from(u32::MAX));
        self.check();
        assert!(self.kv.stats().iter().all(|stats| stats.free + stats.evictable == stats.total));
        self.kv.flush();
        assert!(self.kv.stats().iter().all(|stats| stats.free == stats.total));
        self.kv.check();
        assert_eq!(self.kv.indexed(), []);
    }
}

proptest! {
    #[test]
    fn every_block_holds_what_its_holders_were_promised(
        config in configs(),
        ops in prop::collection::vec(op(), 0..200),
    ) {
        let mut world = World::new(config);
        ops.into_iter().for_each(|op| world.apply(op));
        world.end();
    }
}
