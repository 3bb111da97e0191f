//! Predicted seconds per candidate, and the choice.
//!
//! A route is a decode worker alone, which computes the prompt itself, or a prefill worker and a decode worker. The
//! cost of a pair is the sum of what each side costs, so the best of each side are found apart:
//!
//! | part | prefill worker | decode worker of a pair | decode worker alone |
//! | --- | --- | --- | --- |
//! | `queue_s` | queued tokens / prefill rate | | the same |
//! | `load_s` | tokens loaded of a prefix / rate of the tier | | the same |
//! | `compute_s` | tokens neither cached, loaded nor fetched / prefill rate | | the same |
//! | `fetch_s` | bytes fetched of a prefix / fetch rate | bytes not held / fetch rate | as in a prefill worker |
//! | `overhead_s` | the handoff; the fetch of a prefix | | the fetch of a prefix |
//! | `slowdown_s` | | sequences there * decode step | the same, and `compute_s` * (running + 1) |
//!
//! The last product is what those who decode there lose while the prompt is computed between their tokens; the one
//! stands for the next to arrive. So on idle workers a prompt goes through a prefill worker once computing it takes
//! longer than handing it off, and a prompt that the decode worker has cached does not.
//!
//! Who computes a prompt may fetch a prefix that another worker has more of: the next turn of a conversation finds
//! the KV of the last answer, which its decode worker has, wherever it goes. And it may load what left its device
//! for its own tiers, as a holder may. So there are several ways for the same candidate: computing what its device
//! does not have, loading what its tiers have of that, and fetching what the devices of others have, or their
//! tiers too. It is priced every way and takes the cheapest one, so that nobody is sent to where loading would
//! take longer than computing.

use crate::config::{FetchPolicy, HandoffPolicy, PlacementConfig, Rates};
use crate::index::Held;
use crate::workers::{Given, Worker, Workers};
use domain::session::{Holder, Role};
use domain::{Adapter, BlockHash, WorkerId};
use std::fmt;

/// What one worker would cost, in seconds. Parts that do not apply are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The worker.
    pub worker: WorkerId,
    /// Leading tokens that it has cached, or would load.
    pub cached_tokens: u32,
    /// From whom it would fetch more of them first.
    pub holder: Option<Holder>,
    /// Until it gets to this prompt.
    pub queue_s: f64,
    /// Loading from its tiers, or the holder's from theirs.
    pub load_s: f64,
    /// Computing what is neither cached, loaded nor fetched.
    pub compute_s: f64,
    /// Reading what is not held.
    pub fetch_s: f64,
    /// Handing off and fetching, beside the bytes.
    pub overhead_s: f64,
    /// What others lose, and what they cost this request.
    pub slowdown_s: f64,
    /// Its memory has room now. One that has none is chosen only where none has.
    pub fits: bool,
    /// What it takes over, or computes alone, would soon run there. One where that is not so is chosen only where
    /// it is so of none, and the request waits.
    pub takes: bool,
    /// Its speed is measured, not assumed.
    pub measured: bool,
}

impl Cost {
    /// Returns the sum of the parts.
    pub fn total_s(&self) -> f64 {
        self.queue_s + self.load_s + self.compute_s + self.fetch_s + self.overhead_s + self.slowdown_s
    }

    /// Returns what it is compared by: those where nothing waits for long come first, and of these those with room.
    fn key(&self) -> Key {
        (!self.takes, !self.fits, self.total_s())
    }
}

/// What candidates are compared by.
type Key = (bool, bool, f64);

/// Who serves an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Computes the prompt; `None`: the decode worker does.
    pub prefill: Option<WorkerId>,
    /// Makes the tokens.
    pub decode: WorkerId,
}

/// How many of each kind a decision keeps of what it was chosen from.
pub const CANDIDATES_KEPT: usize = 4;

/// A choice and the best of what it was chosen from: [`CANDIDATES_KEPT`] of each kind at most, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Input tokens of the attempt.
    pub tokens: u32,
    /// Prefill workers.
    pub prefill: Vec<Cost>,
    /// Decode workers as takers of a handoff.
    pub decode: Vec<Cost>,
    /// Decode workers alone.
    pub whole: Vec<Cost>,
    /// The choice.
    pub route: Route,
    /// From whom the one that computes the prompt fetches the beginning of it.
    pub holder: Option<Holder>,
    /// Its cost in seconds.
    pub cost_s: f64,
    /// Predicted seconds to the first token; `None` while the speed behind it is assumed, and where nothing waits
    /// before it: waiting would change nothing, and an idle worker's work is what corrects a measurement that was
    /// wrong.
    pub first_token_s: Option<f64>,
}

impl Decision {
    /// Returns whether its decode worker would soon get to it.
    pub(crate) fn is_soon(&self) -> bool {
        let chosen = if self.route.prefill.is_some() { &self.decode } else { &self.whole };
        chosen.first().is_some_and(|cost| cost.takes)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.route.prefill {
            Some(prefill) => write!(f, "{} tokens: {prefill} to {}", self.tokens, self.route.decode)?,
            None => write!(f, "{} tokens: {} alone", self.tokens, self.route.decode)?,
        }
        write!(f, ", {:.6} s", self.cost_s)?;
        for (name, costs) in [("prefill", &self.prefill), ("decode", &self.decode), ("alone", &self.whole)] {
            for cost in costs {
                let Cost { worker, cached_tokens, queue_s, load_s, compute_s, .. } = cost;
                let Cost { fetch_s, overhead_s, slowdown_s, .. } = cost;
                write!(f, "; {name} {worker}: cached {cached_tokens}")?;
                if let Some(Holder { worker, tokens, .. }) = cost.holder {
                    write!(f, " and to {tokens} from {worker}")?;
                }
                write!(
                    f,
                    ", queue {queue_s:.6} + load {load_s:.6} + compute {compute_s:.6} + fetch {fetch_s:.6} + \
                     overhead {overhead_s:.6} + slowdown {slowdown_s:.6}{}",
                    match (cost.takes, cost.fits) {
                        (true, true) => "",
                        (true, false) => ", no room",
                        (false, _) => ", others wait there",
                    }
                )?;
            }
        }
        Ok(())
    }
}

/// How long a sequence gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contexts {
    /// As input, where it is handed off.
    pub(crate) prefill: u32,
    /// At its end.
    pub(crate) decode: u32,
}

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacementQuery<'a> {
    /// Input tokens.
    pub(crate) tokens: u32,
    /// What of a sequence the one that computes the prompt holds for another, and what the one that decodes it
    /// holds at its end.
    pub(crate) contexts: Contexts,
    /// Sequences that will decode.
    pub(crate) sequences: u32,
    /// Identities of the prompt's full blocks.
    pub(crate) chain: &'a [BlockHash],
    /// What it is computed with.
    pub(crate) adapter: Option<&'a Adapter>,
    /// Whether a handoff is wanted; [`HandoffPolicy::Never`] where it is impossible.
    pub(crate) handoff: HandoffPolicy,
    /// Workers that failed earlier attempts: only where there is no other of the role.
    pub(crate) failed: &'a [WorkerId],
    /// Workers that refused: not again.
    pub(crate) refused: &'a [WorkerId],
}

impl PlacementQuery<'_> {
    /// Returns whether a worker may be chosen at all: it is large enough, has the adapter, takes new work and did not
    /// refuse it.
    fn allows(&self, worker: &Worker) -> bool {
        let context = match worker.role {
            Role::Prefill => self.contexts.prefill,
            Role::Decode => self.contexts.decode,
        };
        let is_able = worker.context_tokens >= context && worker.has(self.adapter);
        is_able && !worker.draining && !self.refused.contains(&worker.id)
    }
}

/// Chooses; `None`: no decode worker will have it. `held` is room for what each worker has.
pub(crate) fn decide(
    config: &PlacementConfig,
    workers: &Workers,
    held: &mut Vec<Held>,
    query: &PlacementQuery<'_>,
) -> Option<Decision> {
    let pricing = Pricing::new(config, workers, held, query);
    let decode = pricing.best(Role::Decode, Pricing::decode);
    let whole = pricing.best(Role::Decode, Pricing::whole);
    let prefill = match query.handoff {
        HandoffPolicy::Never => Vec::new(),
        _ => pricing.best(Role::Prefill, Pricing::prefill),
    };
    let (to, alone) = (*decode.first()?, *whole.first()?);
    let pair = prefill.first().filter(|from| {
        let key = (!to.takes, !(from.fits && to.fits), from.total_s() + to.total_s());
        query.handoff == HandoffPolicy::Always || order(key, alone.key()).is_lt()
    });
    let computes = *pair.unwrap_or(&alone);
    let (route, cost_s) = match pair {
        Some(from) => (Route { prefill: Some(from.worker), decode: to.worker }, from.total_s() + to.total_s()),
        None => (Route { prefill: None, decode: alone.worker }, alone.total_s()),
    };
    let predictable = computes.measured && computes.queue_s > 0.0;
    let first_token_s =
        predictable.then_some(computes.queue_s + computes.load_s + computes.fetch_s + computes.compute_s);
    let holder = computes.holder;
    Some(Decision { tokens: query.tokens, prefill, decode, whole, route, holder, cost_s, first_token_s })
}

/// Chooses who takes a running sequence over, and books it there; `None`: nobody will.
pub(crate) fn take_over(
    config: &PlacementConfig,
    workers: &mut Workers,
    held: &mut Vec<Held>,
    query: &PlacementQuery<'_>,
) -> Option<WorkerId> {
    let costs = Pricing::new(config, workers, held, query).best(Role::Decode, Pricing::decode);
    let taker = *costs.iter().find(|cost| cost.fits)?;
    let blocks = query.tokens.div_ceil(config.block_tokens).saturating_sub(taker.cached_tokens / config.block_tokens);
    workers.give(taker.worker, Given { tokens: 0, sequences: query.sequences, blocks }, query.chain);
    Some(taker.worker)
}

/// Returns whether this decode worker would take a running sequence over, and has room for it.
pub(crate) fn has_room(config: &PlacementConfig, workers: &Workers, query: &PlacementQuery<'_>, id: WorkerId) -> bool {
    workers.get(id).is_some_and(|worker| {
        let blocks = query.tokens.div_ceil(config.block_tokens).saturating_sub(workers.held(id, query.chain).device);
        query.allows(worker) && !worker.silent && !query.failed.contains(&id) && worker.fits(blocks)
    })
}

/// Books a decision, so that the next one sees it before the workers report it.
pub(crate) fn book(config: &PlacementConfig, workers: &mut Workers, query: &PlacementQuery<'_>, decision: &Decision) {
    let Decision { route, holder, .. } = *decision;
    let fetched = holder.map_or(0, |holder| holder.tokens);
    let computing = if route.prefill.is_some() { &decision.prefill } else { &decision.whole };
    let cached = computing.first().map_or(0, |cost| cost.cached_tokens);
    let uncached = query.tokens - cached.max(fetched);
    let load = |workers: &Workers, id: WorkerId, computes: bool, sequences: u32| {
        let held = workers.held(id, query.chain).device;
        Given {
            tokens: if computes { uncached.into() } else { 0 },
            sequences,
            blocks: query.tokens.div_ceil(config.block_tokens).saturating_sub(held),
        }
    };
    let given = load(workers, route.decode, route.prefill.is_none(), query.sequences);
    workers.give(route.decode, given, query.chain);
    if let Some(prefill) = route.prefill {
        let given = load(workers, prefill, true, 0);
        workers.give(prefill, given, query.chain);
    }
}

/// Returns the first of the cheapest.
fn cheapest(costs: impl IntoIterator<Item = Cost>) -> Option<Cost> {
    costs.into_iter().min_by(|a, b| a.total_s().total_cmp(&b.total_s()))
}

fn order(a: Key, b: Key) -> std::cmp::Ordering {
    (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
}

/// Cached tokens that spare computing: whole blocks, and at least one token is left to compute.
fn usable(config: &PlacementConfig, held: u32, tokens: u32) -> u32 {
    held.min((tokens - 1) / config.block_tokens) * config.block_tokens
}

/// A prefix that may be asked for: of whom, and how long that one would load before it can offer it.
#[derive(Clone, Copy)]
struct Prefix {
    holder: Holder,
    load_s: f64,
}

/// The most that is to be had of a prompt, and the second most: who computes it asks another one than itself.
#[derive(Default)]
struct Longest([Option<Prefix>; 2]);

impl Longest {
    fn offer(&mut self, prefix: Prefix) {
        let longer = |than: &Option<Prefix>| than.is_none_or(|than| prefix.holder.tokens > than.holder.tokens);
        if longer(&self.0[0]) {
            self.0 = [Some(prefix), self.0[0]];
        } else if longer(&self.0[1]) {
            self.0[1] = Some(prefix);
        }
    }
}

struct Pricing<'a> {
    config: &'a PlacementConfig,
    workers: &'a Workers,
    /// Speeds of a worker that has not measured its own.
    assumed: Rates,
    query: &'a PlacementQuery<'a>,
    /// What each worker has at the head of the prompt, in the order of their ids.
    held: &'a [Held],
    /// Of devices, and of workers that would load a part.
    prefixes: [Longest; 2],
}

impl<'a> Pricing<'a> {
    fn new(
        config: &'a PlacementConfig,
        workers: &'a Workers,
        held: &'a mut Vec<Held>,
        query: &'a PlacementQuery<'a>,
    ) -> Self {
        workers.held_by_all(query.chain, held);
        let assumed = workers.assumed(&config.defaults);
        let mut pricing = Self { config, workers, assumed, query, held, prefixes: Default::default() };
        if config.fetch == FetchPolicy::Never {
            return pricing;
        }
        let mut prefixes: [Longest; 2] = Default::default();
        for (worker, held) in pricing.each().filter(|(worker, _)| !query.failed.contains(&worker.id)) {
            let prefix = |blocks: u32, load_s: f64| {
                let tokens = usable(config, blocks, query.tokens);
                Prefix { holder: Holder { worker: worker.id, incarnation: worker.peer.incarnation, tokens }, load_s }
            };
            prefixes[0].offer(prefix(held.device, 0.0));
            if held.all > held.device {
                prefixes[1].offer(prefix(held.all, pricing.load_s(worker, held)));
            }
        }
        pricing.prefixes = prefixes;
        pricing
    }

    /// Every worker, and what it has.
    fn each(&self) -> impl Iterator<Item = (&'a Worker, Held)> {
        self.workers.iter().zip(self.held.iter().copied())
    }

    /// Returns the best of a role, the best first; of equals, those with lower ids. May be chosen: those who speak and
    /// did not fail it, else those who speak, else, of those who decode, all: prompts can do without a prefill worker.
    fn best(&self, role: Role, price: impl Fn(&Self, &Worker, Held) -> Cost) -> Vec<Cost> {
        let allowed = || self.each().filter(|(worker, _)| worker.role == role && self.query.allows(worker));
        let fresh = |worker: &Worker| !worker.silent && !self.query.failed.contains(&worker.id);
        let any_fresh = allowed().any(|(worker, _)| fresh(worker));
        let silent_too = role == Role::Decode && !allowed().any(|(worker, _)| !worker.silent);
        let mut best: Vec<Cost> = Vec::with_capacity(CANDIDATES_KEPT);
        for (worker, held) in allowed() {
            if !(if any_fresh { fresh(worker) } else { silent_too || !worker.silent }) {
                continue;
            }
            let cost = price(self, worker, held);
            let at = best.partition_point(|better| order(better.key(), cost.key()).is_le());
            if at < CANDIDATES_KEPT {
                best.truncate(CANDIDATES_KEPT - 1);
                best.insert(at, cost);
            }
        }
        best
    }

    fn prefill(&self, worker: &Worker, held: Held) -> Cost {
        let handoff_s = worker.rates(&self.assumed).handoff_s;
        self.computing(worker, held, |cost| Cost { overhead_s: cost.overhead_s + handoff_s, ..cost })
    }

    fn decode(&self, worker: &Worker, held: Held) -> Cost {
        let rates = worker.rates(&self.assumed);
        let cost = self.nothing(worker, held);
        let bytes = u64::from(self.query.tokens - cost.cached_tokens) * self.config.token_bytes;
        Cost {
            fetch_s: bytes as f64 / rates.fetch_bytes_per_s,
            slowdown_s: f64::from(worker.sequences()) * rates.decode_step_s,
            ..cost
        }
    }

    fn whole(&self, worker: &Worker, held: Held) -> Cost {
        let rates = worker.rates(&self.assumed);
        self.computing(worker, held, |cost| {
            let interference_s = cost.compute_s * f64::from(worker.running() + 1);
            Cost { slowdown_s: f64::from(worker.sequences()) * rates.decode_step_s + interference_s, ..cost }
        })
    }

    /// Returns a worker that computes the prompt, in the way that costs it least, with what `rest` adds to each.
    fn computing(&self, worker: &Worker, held: Held, rest: impl Fn(Cost) -> Cost) -> Cost {
        let computed = self.compute(worker, held, held.device, 0.0);
        let loaded = self.compute(worker, held, held.all, self.load_s(worker, held));
        let alone = cheapest([computed, loaded].map(&rest)).unwrap_or(computed);
        let more =
            |Prefix { holder, .. }: &&Prefix| holder.worker != worker.id && holder.tokens > computed.cached_tokens;
        let prefixes = self.prefixes.iter().flat_map(|longest| longest.0.iter().flatten());
        let fetched = prefixes.filter(more).map(|&prefix| rest(self.fetch_first(worker, computed, prefix)));
        let is_more = |cost: &Cost| cost.holder.is_some_and(|holder| holder.tokens > loaded.cached_tokens);
        cheapest(fetched)
            .filter(|cost| match self.config.fetch {
                FetchPolicy::Always if is_more(cost) => true,
                _ => cost.total_s() < alone.total_s(),
            })
            .unwrap_or(alone)
    }

    /// The parts of a worker that computes what is behind these blocks, which take it so long to load.
    fn compute(&self, worker: &Worker, held: Held, blocks: u32, load_s: f64) -> Cost {
        let rate = worker.rates(&self.assumed).prefill_tokens_per_s;
        let cost = self.nothing(worker, held);
        let cached_tokens = usable(self.config, blocks, self.query.tokens);
        Cost {
            cached_tokens,
            queue_s: worker.queued_tokens() as f64 / rate,
            load_s,
            compute_s: f64::from(self.query.tokens - cached_tokens) / rate,
            ..cost
        }
    }

    /// Returns how long the worker takes to load what its tiers have at the head of the prompt. It reads them side by
    /// side.
    fn load_s(&self, worker: &Worker, held: Held) -> f64 {
        let rates = worker.rates(&self.assumed);
        let seconds = |blocks: u32, rate: f64| f64::from(blocks * self.config.block_tokens) / rate;
        seconds(held.host, rates.host_tokens_per_s).max(seconds(held.disk, rates.disk_tokens_per_s))
    }

    /// Prices the same worker, where it fetches the prefix before it computes.
    fn fetch_first(&self, worker: &Worker, here: Cost, Prefix { holder, load_s }: Prefix) -> Cost {
        let rates = worker.rates(&self.assumed);
        let bytes = u64::from(holder.tokens - here.cached_tokens) * self.config.token_bytes;
        Cost {
            holder: Some(holder),
            load_s,
            compute_s: f64::from(self.query.tokens - holder.tokens) / rates.prefill_tokens_per_s,
            fetch_s: bytes as f64 / rates.fetch_bytes_per_s,
            overhead_s: rates.handoff_s,
            ..here
        }
    }

    /// A worker that has nothing to do for it.
    fn nothing(&self, worker: &Worker, held: Held) -> Cost {
        let held = held.device;
        let blocks = self.query.tokens.div_ceil(self.config.block_tokens).saturating_sub(held);
        Cost {
            worker: worker.id,
            cached_tokens: held * self.config.block_tokens,
            holder: None,
            queue_s: 0.0,
            load_s: 0.0,
            compute_s: 0.0,
            fetch_s: 0.0,
            overhead_s: 0.0,
            slowdown_s: 0.0,
            fits: worker.fits(blocks),
            takes: worker.role == Role::Prefill || worker.takes(self.query.sequences, blocks),
            measured: worker.measured(),
        }
    }
}
