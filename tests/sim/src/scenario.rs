//! What a seed draws before anything runs: the cluster, its settings, what is asked of it, and what will go wrong.

use crate::caps::Caps;
use crate::directory::Listings;
use crate::disk::Disks;
use crate::fault::{self, Fault, OF_DIRECTORY, Theme};
use crate::random::Random;
use crate::tenants::Tenants;
use domain::{
    Adapter, Dtype, Encoding, KvGroup, KvKind, KvLayout, ModelLayout, Request, RequestId, SamplingParams, Token,
};
use engine::sim::{HEAD_DIM, Oracle, Vocabulary};
use kv_manager::EvictionPolicy;
use placement::{FetchPolicy, HandoffPolicy};
use scheduler::SchedulerConfig;
use std::sync::Arc;
use std::time::Duration;

/// Tokens that the fake model says.
const VOCABULARY: u32 = 97;
/// Ids of probes begin here.
pub(crate) const PROBE_FIRST: u64 = 1000;
/// A request with this deadline ends for other reasons.
pub(crate) const NO_DEADLINE: Duration = Duration::from_secs(600);

/// Everything drawn.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) routers: usize,
    /// Prefill workers; the decode workers come after them.
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
    pub(crate) layout: KvLayout,
    pub(crate) blocks: Vec<u32>,
    pub(crate) reserve_blocks: u32,
    pub(crate) eviction: EvictionPolicy,
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) steps_in_flight: usize,
    /// Every worker has a disk tier, or none has.
    pub(crate) disks: Option<Disks>,
    pub(crate) tenants: Tenants,
    /// Routers follow a directory of workers; none: they have a list of all.
    pub(crate) listings: Option<Listings>,
    /// How fast cards are, beside the preset's.
    pub(crate) speed: f64,
    pub(crate) policy: HandoffPolicy,
    pub(crate) fetch: FetchPolicy,
    pub(crate) attempts_max: u32,
    pub(crate) requests_max: usize,
    pub(crate) index_blocks_max: usize,
    pub(crate) lease: Duration,
    pub(crate) handoff_wait: Duration,
    pub(crate) answer_wait: Duration,
    pub(crate) release_retry: Duration,
    pub(crate) offer_max: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) silence_max: Duration,
    pub(crate) network: Network,
    pub(crate) caps: Caps,
    pub(crate) asks: Vec<Ask>,
    /// A request whose prompt makes every step fail that it is in.
    pub(crate) poison: Option<RequestId>,
    pub(crate) hurts: Duration,
    pub(crate) faults: Vec<Fault>,
    /// The faults are so short that nobody else may hear of them.
    is_harmless: bool,
}

/// How messages and bytes travel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
    /// Bytes a microsecond of a read.
    pub(crate) bytes_per_us: u64,
    /// Frames of a session on their way.
    pub(crate) session_frames_max: usize,
    /// Bytes that wait for a router before its sequences do.
    pub(crate) outbox_bytes: usize,
    /// A cancelled read goes on for up to this.
    pub(crate) quiesce_max: Duration,
}

/// What a client asks, and what it does later.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) at: Duration,
    pub(crate) router: usize,
    pub(crate) request: Arc<Request>,
    /// It hangs up so long after it asked.
    pub(crate) hangs_up: Option<Duration>,
    /// A stop string ends this choice after so many tokens.
    pub(crate) stops: Option<(u16, u32)>,
}

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        Self::draw_without_directory(seed).listed(&mut Random::new(seed, 13))
    }

    fn draw_without_directory(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let random = &mut random;
        let layout = layout(random, &mut Random::new(seed, 12));
        let size = layout.block_tokens;
        let running_max = random.range(2, 12) as u32;
        let scheduler = SchedulerConfig {
            step_tokens_max: running_max + size * random.range(1, 8) as u32,
            chunk_tokens: size * random.range(1, 4) as u32,
            running_max,
            waiting_max: if random.chance(100) { 2 } else { 64 },
            block_tokens: size,
            samples_max: running_max + random.range(0, 8) as u32,
        };
        // The longest request needs all of the smallest pool, but for a little.
        let longest = (PROMPT_MAX + OUTPUT_MAX).div_ceil(size) + 4;
        let blocks = if random.chance(500) { longest + random.range(0, 8) as u32 } else { longest * 4 };
        let disks = Disks::draw(&mut Random::new(seed, 4));
        // What fits the device never comes back from a disk.
        let blocks = if disks.is_some() { blocks.min(longest * 3 / 2) } else { blocks };
        let heartbeat = random.millis(20, 100);
        let hurts = random.millis(600, 1500);
        let routers = random.range(1, 3) as usize;
        let theme = Theme::draw(random);
        // The same two again, so that what one life said meets the other's leases of the same number.
        let (prefill, decode) = match theme {
            Theme::Restarts => (1, 1),
            Theme::Moves => (random.range(0, 3), random.range(2, 3)),
            Theme::Mixed | Theme::Cancels => (random.range(0, 3), random.range(1, 3)),
        };
        let mut crowd_random = Random::new(seed, 7);
        let crowded = disks.is_some_and(|disks| disks.host > 0) && crowd_random.chance(500);
        let disks = if crowded { disks.map(|disks| disks.crowded(&mut crowd_random)) } else { disks };
        let (prefill, decode) = if crowded { (prefill.min(1), 1) } else { (prefill, decode) };
        let (prefill, decode) = (prefill as usize, decode as usize);
        let mut fault_random = Random::new(seed, 2);
        let mut asks = asks(random, theme, routers, hurts, if disks.is_some() { 950 } else { 600 });
        if crowded {
            crowd(&mut crowd_random, &mut asks, hurts);
        }
        let mut talk = Random::new(seed, 5);
        let mut who = Random::new(seed, 6);
        let tenants = Tenants::draw(&mut who);
        let tenants = if crowded { Tenants { names: vec![String::new()], ..tenants } } else { tenants };
        tenants.assign(&mut who, &mut asks, 1000);
        let mut adapted = Random::new(seed, 10);
        // A crowd has no room for the same texts twice, so it is one tenant's and without adapters.
        let has_adapters = adapted.chance(300) && !crowded;
        adapt(&mut adapted, &mut asks, if has_adapters { 1000 } else { 0 });
        go_on(&mut talk, &mut asks, &layout, hurts);
        tenants.assign(&mut who, &mut asks, 200);
        adapt(&mut adapted, &mut asks, if has_adapters { 100 } else { 0 });
        let mut rare = Random::new(seed, 8);
        vary(&mut rare, &mut asks);
        let caps = Caps::draw(&mut rare, prefill + decode, PROMPT_MAX as usize, (PROMPT_MAX + OUTPUT_MAX) as usize);
        // As much as pins may name is left out of what prompts have.
        let blocks = blocks * 100 / (100 - caps.pinned_percent) + 1;
        let scenario = Self {
            seed,
            routers,
            prefill,
            decode,
            blocks: pool_blocks(&mut Random::new(seed, 9), &layout, scheduler.chunk_tokens, &caps, blocks),
            layout,
            reserve_blocks: random.range(0, 3) as u32,
            scheduler,
            steps_in_flight: if Random::new(seed, 11).chance(800) { 2 } else { 1 },
            disks,
            tenants,
            listings: None,
            // A crowd is served in the end.
            speed: random.pick(&[0.05, 0.2, 1.0f64]).max(if crowded { 0.2 } else { 0.0 }),
            policy: if theme == Theme::Restarts || random.chance(700) {
                HandoffPolicy::Always
            } else {
                HandoffPolicy::Auto
            },
            fetch: talk.pick(&[FetchPolicy::Always, FetchPolicy::Always, FetchPolicy::Auto, FetchPolicy::Never]),
            attempts_max: random.range(3, 6) as u32,
            requests_max: if random.chance(50) { 4 } else { 64 },
            index_blocks_max: if random.chance(200) { 16 } else { 4096 },
            lease: random.millis(30, 300),
            handoff_wait: random.millis(100, 800),
            answer_wait: random.millis(50, 300),
            release_retry: random.millis(5, 40),
            offer_max: random.millis(500, 4000),
            heartbeat,
            silence_max: heartbeat * random.range(4, 8) as u32,
            network: Network {
                outbox_bytes: Random::new(seed, 40).pick(&[1 << 10, worker::OUTBOX_BYTES]),
                // Moves are handoffs of which little is left to read: what they wait for are messages.
                latency: if theme == Theme::Moves { random.micros(500, 8000) } else { random.micros(20, 2000) },
                jitter: random.micros(10, 3000),
                bytes_per_us: random.pick(&[1, 10, 1000]),
                session_frames_max: random.pick(&[4, 64, 8192]),
                quiesce_max: random.millis(0, 80),
            },
            caps,
            asks,
            eviction: random.pick(&[EvictionPolicy::Lru, EvictionPolicy::S3Fifo, EvictionPolicy::Tree]),
            hurts,
            is_harmless: false,
            poison: None,
            faults: Vec::new(),
        };
        let faults = fault::plan(&mut fault_random, theme, &scenario);
        let scenario = Self { faults, ..scenario };
        let mut operator = Random::new(seed, 9);
        if scenario.faults.is_empty() {
            let scenario = scenario.calm(&mut fault_random);
            return if operator.chance(500) { scenario.operated(&mut operator, theme) } else { scenario };
        }
        if operator.chance(100) {
            let scenario = Self { faults: Vec::new(), ..scenario }.calm(&mut fault_random);
            return scenario.operated(&mut operator, theme);
        }
        let poison = fault_random.chance(80).then(|| scenario.asks[fault_random.index(scenario.asks.len())].request.id);
        let mut scenario = Self { poison, ..scenario };
        if operator.chance(400) {
            let asked = fault::operators(&mut operator, theme, &scenario, Duration::ZERO);
            scenario.faults.extend(asked);
        }
        if rare.chance(15) && !crowded && scenario.prefill > 0 { scenario.far_ahead(&mut rare) } else { scenario }
    }

    /// The same where a decode worker comes far ahead of the prefill worker's first token, which is long on its way.
    fn far_ahead(mut self, random: &mut Random) -> Self {
        self.routers = 1;
        self.asks.iter_mut().for_each(|ask| (ask.router, ask.at) = (0, ask.at + CALM_BEGINS));
        let longest = &mut self.asks[0];
        let params = SamplingParams { max_tokens: FAR_AHEAD, ..SamplingParams::default() };
        let (params, deadline, seed) = (Arc::new(params), NO_DEADLINE, random.next());
        longest.request = Arc::new(Request { choices: 1, params, deadline, seed, ..(*longest.request).clone() });
        (longest.at, longest.hangs_up, longest.stops) = (CALM_BEGINS / 2, None, None);
        let blocks = (PROMPT_MAX + FAR_AHEAD).div_ceil(self.layout.block_tokens) * 2;
        self.blocks.iter_mut().for_each(|of| *of = blocks);
        self.caps = self.caps.calm();
        (self.speed, self.policy, self.poison) = (1.0, HandoffPolicy::Always, None);
        (self.heartbeat, self.silence_max) = (FAR_AHEAD_HURTS / 2, FAR_AHEAD_HURTS * 2);
        self.hurts = FAR_AHEAD_HURTS;
        let (kind, step) = (fault::FaultKind::RouterPartition, Some(crate::step::Step::Offering));
        self.faults = vec![Fault { kind, after: Duration::ZERO, step, lasts: FAR_AHEAD_HURTS, beside: None }];
        self
    }

    /// The same where nothing goes wrong, or only what harms nobody: no limit is so low that what is asked reaches it.
    fn calm(mut self, random: &mut Random) -> Self {
        self.scheduler.waiting_max = CALM_WAITING_MAX;
        self.requests_max = CALM_WAITING_MAX as usize;
        self.caps = self.caps.calm();
        self.handoff_wait = CALM_WAIT;
        self.offer_max = CALM_WAIT * 2;
        self.asks.iter_mut().for_each(|ask| ask.at += CALM_BEGINS);
        self.hurts += CALM_BEGINS;
        let slower = self.network.latency + self.network.jitter;
        // Nobody hears of a pause that is shorter than all that others wait for.
        let waits = [self.lease * 2 / 3, self.silence_max - self.heartbeat * 2, self.answer_wait];
        let shortest = waits.into_iter().min().unwrap_or_default().saturating_sub(slower * 2 + PAUSE_MARGIN);
        if random.chance(500) && shortest > PAUSE_MARGIN {
            self.faults = fault::pauses(random, shortest, CALM_BEGINS, self.hurts);
            self.is_harmless = true;
        }
        self
    }

    /// The same with operators, who leave a decode worker to every router at any time: nobody notices anything else.
    fn operated(mut self, random: &mut Random, theme: Theme) -> Self {
        let asked = fault::operators(random, theme, &self, CALM_BEGINS);
        self.faults.extend(asked);
        self.is_harmless = true;
        self
    }

    /// The same where routers follow a directory, in every second world. That may be wrong: where nothing else is, no
    /// request notices it.
    fn listed(mut self, random: &mut Random) -> Self {
        if random.chance(500) || self.hurts == FAR_AHEAD_HURTS {
            return self;
        }
        self.listings = Some(Listings::draw(random));
        if random.chance(700) {
            self.is_harmless = self.is_harmless();
            let begins = if self.is_harmless { CALM_BEGINS } else { Duration::ZERO };
            self.faults.extend(fault::directory(random, begins, self.hurts));
        }
        self
    }

    /// A large cluster whose directory forgets, lies, lags and repeats itself, and in which nothing else goes wrong.
    pub(crate) fn fleet(workers: usize) -> Self {
        let random = &mut Random::new(workers as u64, 15);
        let drawn = Self::draw_without_directory(FLEET_SEED);
        let kinds = OF_DIRECTORY.into_iter().cycle().take(FLEET_FAULTS).zip(0..);
        let fault = |(kind, number)| {
            let after = CALM_BEGINS + (FLEET_HURTS - CALM_BEGINS) * number / FLEET_FAULTS as u32;
            Fault { kind, after, step: None, lasts: FLEET_HURTS / 8, beside: None }
        };
        let (prefill, decode) = (workers / 2, workers - workers / 2);
        let mut asks = drawn.asks.clone();
        asks.truncate(FLEET_ASKS);
        asks.iter_mut().for_each(|ask| (ask.at, ask.router) = (ask.at.min(FLEET_HURTS / 2), 0));
        let scenario =
            Self { routers: 1, prefill, decode, asks, disks: None, poison: None, hurts: FLEET_HURTS, ..drawn };
        let scenario = Self { faults: Vec::new(), ..scenario }.calm(random);
        let listings = Some(Listings::draw(random));
        let (heartbeat, silence_max) = (FLEET_HEARTBEAT, FLEET_HEARTBEAT * 4);
        let faults = kinds.map(fault).collect();
        Self { listings, heartbeat, silence_max, faults, is_harmless: true, ..scenario }
    }

    /// A worker whose loop had no turn for longer than this stood still.
    pub(crate) fn stood_still(&self) -> Duration {
        self.silence_max / 2
    }

    /// Whether nothing goes wrong that is a reason to fail.
    pub(crate) fn is_harmless(&self) -> bool {
        self.is_harmless || self.faults.is_empty()
    }

    /// The tokens that the fake model says.
    pub(crate) fn vocabulary() -> Vocabulary {
        Vocabulary::new(VOCABULARY, []).expect("no token is silent")
    }

    /// What devices compute with, beside the model alone.
    pub(crate) fn adapter() -> Adapter {
        Adapter::named("chess").expect("it has a name")
    }

    /// A request that must be served when all faults are over.
    pub(crate) fn probe(&self, number: u64, router: usize) -> Ask {
        let mut random = Random::new(self.seed, 1000 + number);
        let prompt = (0..20).map(|_| random.range(0, 96) as Token).collect();
        let params = SamplingParams { max_tokens: 6, ..SamplingParams::default() };
        Ask {
            at: Duration::ZERO,
            router,
            request: Arc::new(Request {
                id: RequestId(PROBE_FIRST + number),
                prompt,
                choices: 1,
                params: Arc::new(params),
                seed: random.next(),
                deadline: NO_DEADLINE,
                tenant: String::new(),
                adapter: None,
            }),
            hangs_up: None,
            stops: None,
        }
    }
}

/// How long may be waited for in a world where nothing goes wrong: longer than all that is asked there takes.
const CALM_WAIT: Duration = Duration::from_secs(60);
/// What is asked there comes when all sessions have begun.
const CALM_BEGINS: Duration = Duration::from_millis(100);
/// Tokens that are far more than may wait at a router for one before them, and time enough for them.
const FAR_AHEAD: u32 = 330;
const FAR_AHEAD_HURTS: Duration = Duration::from_millis(2500);
/// What a large cluster asks of, and how long its directory is wrong.
const FLEET_SEED: u64 = 1;
const FLEET_ASKS: usize = 8;
const FLEET_FAULTS: usize = 8;
const FLEET_HURTS: Duration = Duration::from_secs(1);
const FLEET_HEARTBEAT: Duration = Duration::from_millis(250);
/// Requests that such a world has room for.
const CALM_WAITING_MAX: u32 = 256;
/// What a pause lacks of what others wait for.
const PAUSE_MARGIN: Duration = Duration::from_millis(5);
/// Requests of a crowd.
const CROWD: usize = 40;
/// Most output tokens of each.
const CROWD_OUTPUT_MAX: u32 = 20;
/// Longest prompt.
const PROMPT_MAX: u32 = 60;
/// Most output tokens.
const OUTPUT_MAX: u32 = 60;

/// What layers may keep. No states: a step that fails is computed again, and the state that it began with is
/// overwritten by then (decision 26).
const KINDS: [KvKind; 2] = [KvKind::Heads { heads: 1, k_dim: 2, v_dim: 4 }, KvKind::Latent { width: 4, rope: 2 }];

/// One group of all layers, or two, the second of which has a window. `kinds` draws what they keep.
fn layout(random: &mut Random, kinds: &mut Random) -> KvLayout {
    let layers = random.range(2, 4) as u16;
    let group = |layers: Vec<u16>, window| KvGroup { layers, kind: KvKind::of_heads(1, HEAD_DIM), window };
    let groups = if random.chance(600) {
        vec![group((0..layers).collect(), None)]
    } else {
        let window = random.range(3, 24) as u32;
        let (even, odd) = (0..layers).partition(|layer| layer % 2 == 0);
        vec![group(even, random.chance(200).then_some(window + 5)), group(odd, Some(window))]
    };
    let various = kinds.chance(300);
    let of = |group| if various { KvGroup { kind: kinds.pick(&KINDS), ..group } } else { group };
    let groups = groups.into_iter().map(of).collect();
    KvLayout::whole(ModelLayout {
        block_tokens: random.pick(&[4, 8]),
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups,
    })
}

/// Returns the blocks of each group: `blocks`, or fewer where the group has a window, and at least what one prompt has
/// at once of them.
fn pool_blocks(random: &mut Random, layout: &KvLayout, chunk_tokens: u32, caps: &Caps, blocks: u32) -> Vec<u32> {
    let of_group = |group: &KvGroup| {
        let Some(window) = group.reach().filter(|_| random.chance(700)) else { return blocks };
        let window = (window - 1).div_ceil(layout.block_tokens) + 1;
        let least = (2 * window + chunk_tokens / layout.block_tokens) * 100 / (100 - caps.pinned_percent) + 1;
        if least < blocks { random.range(least.into(), blocks.into()) as u32 } else { blocks }
    };
    layout.groups.iter().map(of_group).collect()
}

/// `shares`: so many of 1,000 begin as others do.
fn asks(random: &mut Random, theme: Theme, routers: usize, hurts: Duration, shares: u32) -> Vec<Ask> {
    let count = random.range(4, 24);
    let long = theme == Theme::Moves || random.chance(500);
    let deadlines = match theme {
        Theme::Mixed | Theme::Restarts => 120,
        Theme::Cancels => 250,
        Theme::Moves => 400,
    };
    let prefixes: Vec<Vec<Token>> = (0..3)
        .map(|_| {
            let tokens = random.range(8, u64::from(PROMPT_MAX) - 20);
            (0..tokens).map(|_| random.range(0, 96) as Token).collect()
        })
        .collect();
    let ask = |number| {
        let mut prompt = if random.chance(shares) { prefixes[random.index(3)].clone() } else { Vec::new() };
        let own = random.range(1, u64::from(PROMPT_MAX) - prompt.len() as u64);
        prompt.extend((0..own).map(|_| random.range(0, 96) as Token));
        let max_tokens = match random.index(10) {
            0 => 1,
            1..6 if long => random.range(20, u64::from(OUTPUT_MAX)) as u32,
            _ => random.range(2, 16) as u32,
        };
        let stop_tokens = if random.chance(300) { vec![random.range(0, 96) as Token; 2] } else { Vec::new() };
        let choices = if random.chance(200) { random.range(2, 3) as u16 } else { 1 };
        let params = SamplingParams { max_tokens, stop_tokens, ..SamplingParams::default() };
        Ask {
            at: random.micros(0, hurts.as_micros() as u64),
            router: random.index(routers),
            request: Arc::new(Request {
                id: RequestId(number),
                prompt: prompt.into(),
                choices,
                params: Arc::new(params),
                seed: random.next(),
                deadline: if random.chance(deadlines) { random.millis(5, 600) } else { NO_DEADLINE },
                tenant: String::new(),
                adapter: None,
            }),
            hangs_up: random.chance(60).then(|| random.millis(0, 300)),
            stops: random.chance(100).then(|| (random.index(choices.into()) as u16, random.range(1, 12) as u32)),
        }
    };
    (1..=count).map(ask).collect()
}

/// Some want to know probabilities, or are sampled by their history.
fn vary(random: &mut Random, asks: &mut [Ask]) {
    for ask in asks {
        if random.chance(800) {
            continue;
        }
        let mut params = (*ask.request.params).clone();
        params.logprobs = random.chance(500).then(|| random.range(0, 3) as u32);
        params.presence_penalty = if random.chance(500) { 0.5 } else { 0.0 };
        ask.request = Arc::new(Request { params: Arc::new(params), ..(*ask.request).clone() });
    }
}

/// Of a thousand, so many are computed with an adapter, or without one, from now on.
fn adapt(random: &mut Random, asks: &mut [Ask], thousandths: u32) {
    for ask in asks {
        if random.chance(thousandths) {
            let adapter = random.chance(500).then(Scenario::adapter);
            ask.request = Arc::new(Request { adapter, ..(*ask.request).clone() });
        }
    }
}

/// The same long prompts come again and again, faster than they can be served, and together they are more than a device
/// holds: what they need lies in tiers, and they wait for room.
fn crowd(random: &mut Random, asks: &mut Vec<Ask>, hurts: Duration) {
    let text = |random: &mut Random| -> Vec<Token> {
        let tokens = random.range(40, u64::from(PROMPT_MAX) - 2);
        (0..tokens).map(|_| random.range(0, 96) as Token).collect()
    };
    let texts: Vec<_> = (0..random.range(5, 8)).map(|_| text(random)).collect();
    for number in 0..CROWD {
        let like = &asks[number % asks.len()];
        let mut prompt = texts[random.index(texts.len())].clone();
        prompt.extend((0..random.range(1, 2)).map(|_| random.range(0, 96) as Token));
        let (id, prompt) = (RequestId(number as u64 + 1), prompt.into());
        let params = (*like.request.params).clone();
        let params = Arc::new(SamplingParams { max_tokens: params.max_tokens.min(CROWD_OUTPUT_MAX), ..params });
        let request = Request { id, prompt, params, seed: random.next(), choices: 1, ..(*like.request).clone() };
        let at = random.micros(0, hurts.as_micros() as u64 / 2);
        let ask = Ask { at, request: Arc::new(request), stops: None, ..like.clone() };
        if number < asks.len() { asks[number] = ask } else { asks.push(ask) }
    }
}

/// Some of the requests are the next turn of an earlier one: they begin with its prompt and what was answered, as
/// far as there is room, and come once that can have been said.
fn go_on(random: &mut Random, asks: &mut [Ask], layout: &KvLayout, hurts: Duration) {
    let oracle = Oracle::new(layout, Scenario::vocabulary());
    for number in 1..asks.len() {
        if !random.chance(350) {
            continue;
        }
        let before = &asks[random.index(number)];
        let request = &before.request;
        let mut prompt = request.prompt.to_vec();
        prompt.extend(oracle.with(request.adapter.as_ref()).text(
            &request.prompt,
            &request.params,
            Request::seed(request.seed, 0),
        ));
        let own = random.range(1, 12) as usize;
        prompt.truncate(PROMPT_MAX as usize - own);
        prompt.extend((0..own).map(|_| random.range(0, 96) as Token));
        let at = (before.at + random.millis(5, 200)).min(hurts);
        let (prompt, tenant) = (prompt.into(), request.tenant.clone());
        let adapter = request.adapter.clone();
        let ask = &mut asks[number];
        ask.request = Arc::new(Request { prompt, tenant, adapter, ..(*ask.request).clone() });
        ask.at = at;
    }
}
