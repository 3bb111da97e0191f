//! What a router remembers of a worker at the bound of its index, when it hears of blocks as a real KV manager
//! tells of them: a prompt's head in an earlier report than its tail.

use domain::session::{FromWorker, PeerAddress, PeerInfo, Report, Role};
use domain::{
    BlockHash, BlockLink, Choice, Epoch, Incarnation, Request, RequestId, SamplingParams, Scope, ScopeParts, SeqKey,
    Tenant, Time, Token, WorkerId,
};
use kv_manager::{Admit, EvictionPolicy, GroupConfig, KvConfig, KvManager, Quotas, Watermarks};
use placement::{Event, FetchPolicy, HandoffPolicy, Placement, PlacementConfig, Rates};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const BLOCK_TOKENS: u32 = 16;
/// Full blocks of a prompt. One token more has to be computed in any case.
const PROMPT_BLOCKS: u32 = 10;
const TOKENS: u32 = PROMPT_BLOCKS * BLOCK_TOKENS + 1;
/// What a step computes of a prompt, after which a report says so.
const CHUNK_TOKENS: u32 = 3 * BLOCK_TOKENS;
const INDEX_BLOCKS_MAX: usize = 200;
const WORKER: WorkerId = WorkerId(1);

/// What an index of plain design would know: of blocks that no other one continues, the one goes that was used
/// longest ago.
#[derive(Default)]
struct ByUse {
    blocks: BTreeMap<BlockHash, (Option<BlockHash>, u64)>,
    uses: u64,
}

impl ByUse {
    fn used(&mut self, link: BlockLink) {
        self.uses += 1;
        self.blocks.insert(link.hash, (link.parent, self.uses));
        if self.blocks.len() > INDEX_BLOCKS_MAX {
            let continued: BTreeSet<BlockHash> = self.blocks.values().filter_map(|&(parent, _)| parent).collect();
            let leaves = self.blocks.iter().filter(|(block, _)| !continued.contains(block));
            let first = leaves.min_by_key(|&(_, &(_, used))| used).map(|(block, _)| *block);
            self.blocks.remove(&first.expect("there is a leaf"));
        }
    }

    /// Whether it has the whole chain, which is used then as far as it has it.
    fn finds(&mut self, chain: &[BlockHash]) -> bool {
        let held = chain.iter().take_while(|block| self.blocks.contains_key(block)).count();
        BlockLink::run(None, &chain[..held]).for_each(|link| self.used(link));
        held == chain.len()
    }
}

/// A router, a worker's KV manager, and the plain index beside the router's.
struct World {
    placement: Placement,
    kv: KvManager,
    by_use: ByUse,
    scope: Scope,
    requests: u64,
    reports: u64,
}

impl World {
    fn new(worker_blocks: u32) -> Self {
        let kv = KvManager::new(KvConfig {
            block_tokens: BLOCK_TOKENS,
            chunk_tokens: BLOCK_TOKENS,
            groups: vec![GroupConfig { blocks: worker_blocks, reserve_blocks: 0, window: None }],
            eviction: EvictionPolicy::Tree,
            watermarks: Watermarks::default(),
            pinned_percent: 0,
            quotas: Quotas::default(),
            park_after: None,
            answers_max: 1,
            leases_max: 1,
        });
        let placement = Placement::new(PlacementConfig {
            block_tokens: BLOCK_TOKENS,
            token_bytes: 1,
            attempts_max: 1,
            lease: Duration::from_secs(1),
            requests_max: 32,
            index_blocks_max: INDEX_BLOCKS_MAX,
            handoff: HandoffPolicy::Never,
            fetch: FetchPolicy::Never,
            heartbeat: Duration::from_secs(3600),
            silence_max: Duration::from_secs(7200),
            defaults: Rates {
                prefill_tokens_per_s: 1e3,
                decode_step_s: 0.01,
                fetch_bytes_per_s: 1e8,
                host_tokens_per_s: 1e4,
                disk_tokens_per_s: 1e4,
                handoff_s: 0.02,
            },
        });
        let scope = Scope::derive(&ScopeParts { weights: [0; 32], layout: 0, adapter: None, tenant: "" });
        let mut world = Self { placement, kv, by_use: ByUse::default(), scope, requests: 0, reports: 0 };
        let peer = PeerInfo {
            id: WORKER,
            incarnation: Incarnation(1),
            name: "worker".to_owned(),
            role: Role::Decode,
            address: PeerAddress::default(),
        };
        world.event(Event::WorkerUp { peer, context_tokens: u32::MAX });
        world.report();
        world
    }

    fn event(&mut self, event: Event) {
        self.placement.handle(Time::ZERO, event, &mut Vec::new());
    }

    /// The worker says what changed.
    fn report(&mut self) {
        let changes = self.kv.take_index_changes();
        self.by_use.blocks.retain(|block, _| !changes.gone.contains(block));
        changes.device.iter().for_each(|&link| self.by_use.used(link));
        self.reports += 1;
        let report = Report {
            incarnation: Incarnation(1),
            number: self.reports,
            submits: self.requests,
            added: changes.device,
            removed: changes.gone,
            ..Report::default()
        };
        self.event(Event::Worker { id: WORKER, message: FromWorker::Report(report) });
    }

    /// Of how many of these prompts, which are asked at once, the router knows that the worker has them whole, and
    /// of how many it would by use. The worker computes what it does not have, a chunk of each prompt in a step.
    fn ask(&mut self, prompts: &[u32]) -> [usize; 2] {
        let mut found = [0, 0];
        let mut open = Vec::new();
        for prompt in prompts {
            let tokens: Vec<Token> = (0..TOKENS).map(|token| token + 1_000 * prompt).collect();
            let mut chain = Vec::new();
            self.scope.extend_chain(&mut chain, &tokens, BLOCK_TOKENS);
            self.requests += 1;
            let id = RequestId(self.requests);
            let request = Request {
                id,
                prompt: Arc::from(tokens),
                choices: 1,
                params: Arc::new(SamplingParams { max_tokens: 1, ..SamplingParams::default() }),
                seed: 0,
                deadline: Duration::from_secs(10),
                tenant: String::new(),
                adapter: None,
            };
            self.event(Event::Arrive { request: Arc::new(request), chain: chain.clone() });
            let decision = self.placement.explain(id).expect("there is a worker");
            found[0] += usize::from(decision.whole[0].cached_tokens == PROMPT_BLOCKS * BLOCK_TOKENS);
            found[1] += usize::from(self.by_use.finds(&chain));
            let key = SeqKey { request: id, epoch: Epoch(1), choice: Choice(0) };
            let Admit::Ready { cached_tokens } = self.kv.open(key, Tenant(1), &chain, TOKENS, 1) else {
                panic!("the pool has room for all that are asked at once");
            };
            open.push((key, chain, cached_tokens));
        }
        while open.iter().any(|&(.., written)| written < TOKENS) {
            for (key, chain, written) in &mut open {
                *written = (*written + CHUNK_TOKENS).min(TOKENS);
                self.kv.written(*key, *written, chain);
            }
            self.report();
        }
        for (key, ..) in open {
            self.kv.close(key);
            self.event(Event::Gone { request: key.request });
        }
        assert!(self.placement.indexed_blocks() <= INDEX_BLOCKS_MAX);
        found
    }

    /// Asks all, so many at once.
    fn ask_all(&mut self, prompts: &[u32], at_once: usize) -> [usize; 2] {
        let counts = prompts.chunks(at_once).map(|prompts| self.ask(prompts));
        counts.fold([0, 0], |sum, count| [sum[0] + count[0], sum[1] + count[1]])
    }
}

#[test]
fn as_many_prompts_are_found_whole_as_there_is_room_for() {
    for at_once in [1, 8, 16, 32] {
        let mut world = World::new(4_000);
        let mut prompts: Vec<u32> = (0..32).collect();
        assert_eq!(world.ask_all(&prompts, at_once), [0, 0]);
        prompts.reverse();
        let [found, by_use] = world.ask_all(&prompts, at_once);
        assert!(by_use <= found, "{by_use} by order of use, {at_once} at once");
        assert_eq!(found, INDEX_BLOCKS_MAX / PROMPT_BLOCKS as usize, "{at_once} at once");
    }
}

#[test]
fn as_many_are_found_as_by_order_of_use() {
    for (worker_blocks, at_once) in [(150, 1), (150, 8), (300, 8), (300, 16), (4_000, 8), (4_000, 16)] {
        let mut world = World::new(worker_blocks);
        let mut state = 1u32;
        // Some prompts are asked far more often than others.
        let mut draw = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % 40
        };
        let prompts: Vec<u32> = (0..320).map(|_| draw().min(draw())).collect();
        let [found, by_use] = world.ask_all(&prompts, at_once);
        assert!(found >= by_use && found > 140, "{found} of 320 are found, by order of use {by_use}");
    }
}
