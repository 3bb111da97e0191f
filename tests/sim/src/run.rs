//! Running seeds: one, many, and what is left of one that fails when it is made smaller.

use crate::coverage::Coverage;
use crate::invariants::{Law, Violation};
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::world::World;
use domain::Time;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

thread_local! {
    /// What the last panic of this thread said.
    static PANICKED: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether this thread runs a world.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// The part of a seed's faults and requests that is run; `None`: all.
#[derive(Clone, Debug, Default)]
pub struct Subset {
    /// Numbers of faults.
    pub faults: Option<Vec<usize>>,
    /// Numbers of requests.
    pub requests: Option<Vec<u64>>,
}

/// What a seed came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The law that was broken, if any.
    pub violation: Option<Violation>,
    /// What its faults hit.
    pub coverage: Coverage,
    /// Events that happened.
    pub events: u64,
    /// How long it took, in the world's time.
    pub time: Time,
}

/// A seed that violates something.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// What it violates.
    pub violation: Violation,
}

/// What many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Seeds that ran.
    pub seeds: u64,
    /// Events that happened in all of them.
    pub events: u64,
    /// What faults hit.
    pub coverage: Coverage,
    /// The violation of the lowest seed, if any.
    pub found: Option<Found>,
}

/// Runs a seed.
pub fn run_seed(seed: u64) -> Outcome {
    run(seed, &Subset::default(), Trace::Off).0
}

/// Runs a seed, or a part of it, and prints what happens where `verbose`.
pub fn replay(seed: u64, part: &Subset, verbose: bool) -> Outcome {
    run(seed, part, if verbose { Trace::Printed } else { Trace::Off }).0
}

/// Everything that happens in a seed, a line each.
pub fn trace_of(seed: u64) -> Vec<String> {
    match run(seed, &Subset::default(), Trace::Kept(Vec::new())).1 {
        Trace::Kept(lines) => lines,
        Trace::Off | Trace::Printed => Vec::new(),
    }
}

/// What a worker of a large cluster costs.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The law that was broken, if any.
    pub violation: Option<Violation>,
    /// What the directory showed a router, for each worker.
    pub sights: f64,
    /// Frames of sessions, both ways, for each worker.
    pub frames: f64,
    /// Workers that a router lists when all is over.
    pub listed: usize,
}

/// Runs a cluster of so many workers, whose directory is wrong for a while.
pub fn run_fleet(workers: usize) -> Fleet {
    let mut world = World::new(Scenario::fleet(workers), Trace::Off);
    world.run();
    let per_worker = |count: u64| count as f64 / workers as f64;
    let alive = world.routers[0].alive.as_ref();
    Fleet {
        sights: per_worker(world.discovery.as_ref().map_or(0, |discovery| discovery.sent)),
        frames: per_worker(world.frames),
        listed: alive.map_or(0, |alive| alive.follower.known.len()),
        violation: world.violation.take(),
    }
}

/// Runs seeds on so many threads, until one violates something.
pub fn run_seeds(seeds: Range<u64>, threads: usize) -> Batch {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let batch = Mutex::new(Batch::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run_seed(seed);
                    let mut batch = batch.lock().unwrap_or_else(PoisonError::into_inner);
                    batch.seeds += 1;
                    batch.events += outcome.events;
                    batch.coverage.add(&outcome.coverage);
                    if let Some(violation) = outcome.violation {
                        stop.store(true, Ordering::Relaxed);
                        if batch.found.as_ref().is_none_or(|found| seed < found.seed) {
                            batch.found = Some(Found { seed, violation });
                        }
                    }
                }
            });
        }
    });
    batch.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Takes away, one by one, the faults and requests without which the seed still violates the same.
pub fn shrink(found: &Found) -> Subset {
    let scenario = Scenario::draw(found.seed);
    let still = |part: &Subset| {
        let violation = run(found.seed, part, Trace::Off).0.violation;
        violation.is_some_and(|violation| violation.law == found.violation.law)
    };
    let mut faults: Vec<usize> = (0..scenario.faults.len()).collect();
    let mut requests: Vec<u64> = scenario.asks.iter().map(|ask| ask.request.id.0).collect();
    for fault in faults.clone() {
        let fewer: Vec<usize> = faults.iter().copied().filter(|&other| other != fault).collect();
        if still(&Subset { faults: Some(fewer.clone()), requests: Some(requests.clone()) }) {
            faults = fewer;
        }
    }
    for request in requests.clone() {
        let fewer: Vec<u64> = requests.iter().copied().filter(|&other| other != request).collect();
        if still(&Subset { faults: Some(faults.clone()), requests: Some(fewer.clone()) }) {
            requests = fewer;
        }
    }
    Subset { faults: Some(faults), requests: Some(requests) }
}

fn run(seed: u64, part: &Subset, trace: Trace) -> (Outcome, Trace) {
    hear_panics();
    let mut scenario = Scenario::draw(seed);
    if let Trace::Printed = trace {
        println!("{scenario:#?}");
    }
    if let Some(requests) = &part.requests {
        scenario.asks.retain(|ask| requests.contains(&ask.request.id.0));
    }
    if let Some(faults) = &part.faults {
        let mut number = 0..;
        scenario.faults.retain(|_| faults.contains(&number.next().unwrap_or(0)));
    }
    let mut world = World::new(scenario, trace);
    RUNS.set(true);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    RUNS.set(false);
    if ended.is_err() {
        let what = PANICKED.with_borrow(Clone::clone);
        world.broken(Law::Assertion, what);
    }
    let outcome = Outcome {
        violation: world.violation.take(),
        coverage: std::mem::take(&mut world.coverage),
        events: world.events,
        time: world.now,
    };
    let trace = std::mem::take(&mut world.trace);
    // After a panic a core may be in no state to be dropped in order.
    if ended.is_err() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(world)));
    }
    (outcome, trace)
}

/// Panics of worlds are outcomes: they are noted and not printed.
fn hear_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if RUNS.get() {
                PANICKED.set(panic.to_string());
            } else {
                before(panic);
            }
        }));
    });
}
