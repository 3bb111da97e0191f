//! A device that hears only of changes knows all blocks and tokens, however sequences come and go.

use super::Slots;
use crate::prompt_sources::Sources;
use crate::sequence::Sequence;
use domain::plan::{SlotChange, StepPlan};
use domain::{Choice, Epoch, RequestId, SamplingParams, Scope, ScopeParts, SeqKey, StepId, Tenant, Time, Tokens};
use engine::slots::DeviceSlots;
use kv_manager::{Admit, EvictionPolicy, GroupConfig, Grow, KvConfig, KvManager, Quotas, Watermarks};
use scheduler::Work;
use std::collections::HashMap;
use std::sync::Arc;

/// Tokens of a block.
const SIZE: u32 = 4;
/// Slots of the device.
const SLOTS: usize = 2;

fn key(request: u64) -> SeqKey {
    SeqKey { request: RequestId(request), epoch: Epoch(1), choice: Choice(0) }
}

/// A worker's sequences, and its device.
struct World {
    slots: Slots,
    kv: KvManager,
    sequences: HashMap<SeqKey, Sequence>,
    device: DeviceSlots,
    step: StepId,
}

impl World {
    fn new() -> Self {
        let group = GroupConfig { blocks: 64, reserve_blocks: 0, window: None };
        let kv = KvManager::new(KvConfig {
            block_tokens: SIZE,
            chunk_tokens: SIZE,
            groups: vec![group, GroupConfig { window: Some(6), ..group }],
            eviction: EvictionPolicy::Lru,
            watermarks: Watermarks::default(),
            pinned_percent: 0,
            quotas: Quotas::default(),
            park_after: None,
            answers_max: 4,
            leases_max: 4,
        });
        let (slots, device) = (Slots::new(SLOTS), DeviceSlots::new(SLOTS, 2));
        Self { slots, kv, sequences: HashMap::new(), device, step: StepId(0) }
    }

    /// A sequence begins whose prompt has so many tokens. It is sampled by what it has said.
    fn open(&mut self, request: u64, tokens: u32) {
        let prompt: Arc<[u32]> = (0..tokens).map(|token| token + 100 * request as u32).collect();
        let params = SamplingParams { presence_penalty: 0.5, ..SamplingParams::default() };
        let sequence = Sequence {
            tokens: Tokens::new(prompt, &[]),
            chain: Arc::default(),
            scope: Scope::derive(&ScopeParts { weights: [0; 32], layout: 0, adapter: None, tenant: "" }),
            adapter: None,
            params: Arc::new(params),
            seed: 0,
            guide: None,
            choices: vec![Choice(0)],
            arrived: Time::ZERO,
            cached_tokens: 0,
            loadable_tokens: 0,
            sources: Sources::default(),
            fetching: false,
            closing: false,
        };
        self.sequences.insert(key(request), sequence);
        let admit = self.kv.open(key(request), Tenant(0), &[], tokens, 1);
        assert!(matches!(admit, Admit::Ready { .. }), "{admit:?}");
    }

    /// A step computes the rest of these sequences and samples of each. Returns what the plan tells.
    fn step(&mut self, requests: &[u64]) -> Vec<SlotChange> {
        self.step.0 += 1;
        let work: Vec<Work> = requests.iter().map(|&request| self.work(request)).collect();
        let changes = self.slots.changes(self.step, &work, &self.sequences, &mut self.kv);
        let plan = StepPlan { step: self.step, changes, ..StepPlan::default() };
        self.device.take_over(&plan);
        for &Work { key, start, count, .. } in &work {
            let slot = self.slots.slot(key);
            for (group, table) in self.kv.tables(key).iter().enumerate() {
                assert_eq!(self.device.table(slot, group), table, "{key}, group {group}");
            }
            let sequence = self.sequences.get_mut(&key).expect("it is open");
            assert_eq!(self.device.history(slot), &sequence.tokens, "{key}");
            sequence.push(7, SIZE);
            self.kv.written(key, start + count, &[]);
        }
        plan.changes
    }

    fn work(&mut self, request: u64) -> Work {
        let (key, tokens) = (key(request), self.sequences[&key(request)].tokens.len() as u32);
        assert!(matches!(self.kv.grow(key, tokens), Grow::Ready(_)));
        Work { key, start: tokens - 1, count: 1, samples: 1 }
    }
}

/// How many slots these changes open and close.
fn opened_and_closed(changes: &[SlotChange]) -> (usize, usize) {
    let opens = changes.iter().filter(|change| matches!(change, SlotChange::Open { .. })).count();
    let closes = changes.iter().filter(|change| matches!(change, SlotChange::Close { .. })).count();
    (opens, closes)
}

#[test]
fn a_sequence_keeps_its_slot_and_little_is_told() {
    let mut world = World::new();
    world.open(1, 9);
    assert_eq!(opened_and_closed(&world.step(&[1])), (1, 0));
    for _ in 0..20 {
        let changes = world.step(&[1]);
        assert_eq!(opened_and_closed(&changes), (0, 0));
        assert!(changes.len() <= 3, "a token, and a block in each group: {changes:?}");
    }
}

#[test]
fn the_sequence_that_was_computed_least_recently_loses_its_slot() {
    let mut world = World::new();
    (1..=3).for_each(|request| world.open(request, 9));
    world.step(&[1, 2]);
    world.step(&[2]);
    assert_eq!(opened_and_closed(&world.step(&[3])), (1, 0), "the slot of the first is taken");
    assert_eq!(opened_and_closed(&world.step(&[2, 3])), (0, 0));
    assert_eq!(opened_and_closed(&world.step(&[1, 3])), (1, 0), "it is told as a whole");
    assert_eq!(opened_and_closed(&world.step(&[1, 2])), (1, 0));
}

#[test]
fn a_sequence_that_ended_gives_its_slot_back() {
    let mut world = World::new();
    (1..=2).for_each(|request| world.open(request, 9));
    world.step(&[1, 2]);
    world.kv.close(key(1));
    assert_eq!(opened_and_closed(&world.step(&[2])), (0, 1));
    // So does one whose key is another sequence's since.
    world.kv.close(key(2));
    world.open(3, 9);
    world.open(2, 30);
    assert_eq!(opened_and_closed(&world.step(&[3, 2])), (2, 1));
}

#[test]
fn after_a_refusal_everything_is_told_again() {
    let mut world = World::new();
    (1..=2).for_each(|request| world.open(request, 9));
    world.step(&[1, 2]);
    world.slots.close_all();
    world.device = DeviceSlots::new(SLOTS, 2);
    assert_eq!(opened_and_closed(&world.step(&[2, 1])), (2, 0));
}
