//! What decisions cost a router of 1,000 workers whose 10 million blocks are in its index: `make bench-placement`.
//!
//! Allocations and their bytes are counted and are the same in each run; times are there to give an idea. With
//! `--pause` it waits for a line of its input before and after each kind of event, so that
//! `scripts/count-instructions` counts what is between.

use domain::session::{FromWorker, PeerAddress, PeerInfo, Report, Role, TokenRow};
use domain::{
    BlockHash, BlockLink, Choice, Epoch, Incarnation, Request, RequestId, SamplingParams, SeqKey, Time, WorkerId,
};
use placement::{Command, Event, FetchPolicy, HandoffPolicy, Placement, PlacementConfig, Rates};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::stdin;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// Allocations of this thread, and their bytes.
    static COUNT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

struct Counting;

// SAFETY: it is the system's allocator, with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (count, bytes) = COUNT.get();
        COUNT.set((count + 1, bytes + layout.size() as u64));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Workers of each role.
const WORKERS: u32 = 500;
/// Blocks of a prompt.
const PROMPT_BLOCKS: u32 = 100;
/// Prompts that a worker has cached; the first one all have.
const PROMPTS: u32 = 100;
const BLOCK_TOKENS: u32 = 16;
/// Requests that are open all the time.
const OPEN: u64 = 4_000;
/// Events of a kind, but for losses.
const EVENTS: u64 = 200;
/// Workers that are lost.
const LOSSES: u32 = 20;

/// Identities of a prompt of its own.
fn chain(number: u64) -> Vec<BlockHash> {
    let block = |at: u32| {
        let mut hash = [0; 16];
        // Identities are digests: all their bits differ.
        let mixed = (number << 20 | u64::from(at)).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash[..8].copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
        hash[8..].copy_from_slice(&mixed.rotate_left(31).to_le_bytes());
        BlockHash(hash)
    };
    (0..PROMPT_BLOCKS).map(block).collect()
}

struct Router {
    placement: Placement,
    now: Time,
    out: Vec<Command>,
    reports: Vec<u64>,
    requests: u64,
    prompts: u64,
}

impl Router {
    /// One with all workers up and idle, and their caches known.
    fn new() -> Self {
        let config = PlacementConfig {
            block_tokens: BLOCK_TOKENS,
            token_bytes: 131_072,
            attempts_max: 3,
            lease: Duration::from_secs(1),
            requests_max: 100_000,
            index_blocks_max: 20_000_000,
            handoff: HandoffPolicy::Auto,
            fetch: FetchPolicy::Auto,
            heartbeat: Duration::from_secs(3_600),
            silence_max: Duration::from_secs(7_200),
            defaults: Rates::default(),
        };
        let mut router = Self {
            placement: Placement::new(config),
            now: Time::ZERO,
            out: Vec::new(),
            reports: vec![0; 2 * WORKERS as usize],
            requests: 0,
            prompts: 1,
        };
        for id in 0..2 * WORKERS {
            router.up(id);
            let shared = BlockLink::run(None, &chain(0)).collect();
            router.report(id, shared, Vec::new());
            for _ in 1..PROMPTS {
                let added = BlockLink::run(None, &router.new_prompt()).collect();
                router.report(id, added, Vec::new());
            }
        }
        for _ in 0..OPEN {
            let prompt = router.new_prompt();
            router.arrive(prompt);
        }
        router
    }

    fn handle(&mut self, event: Event) {
        self.out.clear();
        self.placement.handle(self.now, event, &mut self.out);
    }

    fn up(&mut self, id: u32) {
        let peer = PeerInfo {
            id: WorkerId(id),
            incarnation: Incarnation(1),
            name: String::new(),
            role: if id < WORKERS { Role::Prefill } else { Role::Decode },
            address: PeerAddress::default(),
        };
        self.handle(Event::WorkerUp { peer, context_tokens: u32::MAX });
    }

    fn new_prompt(&mut self) -> Vec<BlockHash> {
        self.prompts += 1;
        chain(self.prompts)
    }

    fn report(&mut self, id: u32, added: Vec<BlockLink>, removed: Vec<BlockHash>) {
        self.reports[id as usize] += 1;
        let report = Report {
            incarnation: Incarnation(1),
            number: self.reports[id as usize],
            submits: u64::MAX,
            blocks_available: 100_000,
            blocks_total: 100_000,
            prefill_tokens_per_s: 10_000.0,
            added,
            removed,
            ..Report::default()
        };
        self.handle(Event::Worker { id: WorkerId(id), message: FromWorker::Report(report) });
    }

    fn arrive(&mut self, chain: Vec<BlockHash>) {
        self.requests += 1;
        let request = Request {
            id: RequestId(self.requests),
            prompt: vec![1; chain.len() * BLOCK_TOKENS as usize + 1].into(),
            choices: 1,
            params: Arc::new(SamplingParams { max_tokens: 256, ..SamplingParams::default() }),
            seed: 0,
            deadline: Duration::from_secs(3_600),
            tenant: String::new(),
            adapter: None,
        };
        self.handle(Event::Arrive { request: Arc::new(request), chain });
    }

    /// The next token of a request, from its decode worker.
    fn token(&mut self, request: u64, index: u32) {
        let decode = self.placement.explain(RequestId(request)).expect("it is open").route.decode;
        let key = SeqKey { request: RequestId(request), epoch: Epoch(1), choice: Choice(0) };
        let row = TokenRow { key, index, token: 7, logprobs: None, cached_tokens: 0 };
        self.handle(Event::Worker { id: decode, message: FromWorker::Tokens(vec![row]) });
    }
}

/// Prints what an event of a kind costs.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn measure(name: &str, pause: bool, events: u64, mut event: impl FnMut(u64)) {
    let wait = |what: &str| {
        if pause {
            println!("{what} {events} {name}");
            stdin().read_line(&mut String::new()).expect("a line");
        }
    };
    wait("ready");
    let (before, began) = (COUNT.get(), Instant::now());
    (0..events).for_each(&mut event);
    let (took, after) = (began.elapsed(), COUNT.get());
    wait("done");
    let each = |count: u64| count as f64 / events as f64;
    let us = took.as_secs_f64() * 1e6 / events as f64;
    println!(
        "{name:<44} {:>9.1} allocations {:>12.0} bytes {us:>12.1} us",
        each(after.0 - before.0),
        each(after.1 - before.1)
    );
}

fn main() {
    let pause = std::env::args().any(|arg| arg == "--pause");
    let mut router = Router::new();
    println!("{} workers, {} blocks, {} open requests", 2 * WORKERS, router.placement.indexed_blocks(), OPEN);
    measure("placement, nothing is cached", pause, EVENTS, |_| {
        let prompt = router.new_prompt();
        router.arrive(prompt);
    });
    measure("placement, all have the first half", pause, EVENTS, |_| {
        let prompt = [chain(0), router.new_prompt()].concat();
        router.arrive(prompt);
    });
    measure("report, 16 blocks come and 16 go", pause, EVENTS, |at| {
        let prompt = router.new_prompt();
        // Those of the report before.
        let gone = if at == 0 { Vec::new() } else { chain(router.prompts - 1)[..16].to_vec() };
        router.report(7, BlockLink::run(None, &prompt[..16]).collect(), gone);
    });
    measure("token", pause, EVENTS, |at| router.token(1, at as u32));
    router.handle(Event::Worker { id: WorkerId(2 * WORKERS - 1), message: FromWorker::Draining });
    measure("token, while one worker drains", pause, EVENTS.min(50), |at| router.token(2, at as u32));
    measure("loss of a decode worker", pause, LOSSES.into(), |at| {
        router.handle(Event::WorkerDown { id: WorkerId(WORKERS + at as u32) });
    });
}
