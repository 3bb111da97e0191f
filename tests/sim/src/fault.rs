//! What can go wrong, and the plan of a seed: which faults, when, for how long. What they do is in `strike`.

use crate::random::Random;
use crate::step::{STEPS, Step};
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FaultKind {
    /// A worker dies with its memory and comes back.
    WorkerCrash,
    /// A worker dies for good, unless it is the last that decodes.
    WorkerDies,
    /// A step loop stands still; memory and device go on.
    WorkerStuck,
    /// A worker is asked to drain, ends, and comes back.
    WorkerDrain,
    /// A step fails in one of its layers.
    StepFails,
    /// A router dies, and with it its clients' requests, and comes back.
    RouterCrash,
    /// A router stands still.
    RouterStuck,
    /// A session ends; its ends see that at different times.
    SessionCut,
    /// One way of a session brings nothing any more, and nobody is told.
    SessionMute,
    /// A router and a worker do not reach each other, one way or both.
    RouterPartition,
    /// A worker does not reach others.
    PeerPartitionOneWay,
    /// Neither do they reach it.
    PeerPartition,
    /// Reads of a worker take long.
    SlowLane,
    /// Reads of a worker fail, at once or late.
    ReadFails,
    /// A client hangs up.
    HangUp,
    /// A client's time is over. Part of the requests, not of the plan.
    Deadline,
    /// Messages between workers are lost.
    MessageLoss,
    /// They arrive twice.
    MessageTwice,
    /// They take long, each another time: they overtake each other.
    MessageDelay,
    /// Frames of sessions arrive twice.
    FrameTwice,
}

/// Those that hit a worker or its attempts in a step.
pub(crate) const AIMED: [FaultKind; 16] = [
    FaultKind::WorkerCrash,
    FaultKind::WorkerDies,
    FaultKind::WorkerStuck,
    FaultKind::WorkerDrain,
    FaultKind::StepFails,
    FaultKind::RouterCrash,
    FaultKind::RouterStuck,
    FaultKind::SessionCut,
    FaultKind::SessionMute,
    FaultKind::RouterPartition,
    FaultKind::PeerPartitionOneWay,
    FaultKind::PeerPartition,
    FaultKind::SlowLane,
    FaultKind::ReadFails,
    FaultKind::HangUp,
    FaultKind::FrameTwice,
];

/// Those that hit messages between workers.
pub(crate) const OF_MESSAGES: [FaultKind; 3] =
    [FaultKind::MessageLoss, FaultKind::MessageTwice, FaultKind::MessageDelay];

/// A fault of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// Not before this time of the phase that hurts.
    pub(crate) after: Duration,
    /// When a worker is in this step; `None`: at once, at a worker that is drawn then.
    pub(crate) step: Option<Step>,
    pub(crate) lasts: Duration,
}

/// The faults of a seed. Nothing goes wrong in one of twenty.
pub(crate) fn plan(random: &mut Random, hurts: Duration) -> Vec<Fault> {
    if random.chance(50) {
        return Vec::new();
    }
    let count = random.range(1, 10);
    (0..count).map(|_| draw(random, hurts)).collect()
}

fn draw(random: &mut Random, hurts: Duration) -> Fault {
    let hurts_ms = hurts.as_millis() as u64;
    let of_messages = random.chance(150);
    let kind = if of_messages { random.pick(&OF_MESSAGES) } else { random.pick(&AIMED) };
    let step = (!of_messages && random.chance(800)).then(|| random.pick(&STEPS));
    let latest = if step.is_some() { hurts_ms / 2 } else { hurts_ms };
    let lasts = match kind {
        FaultKind::WorkerStuck | FaultKind::RouterStuck if random.chance(500) => random.millis(5, 100),
        _ => random.millis(20, 900),
    };
    Fault { kind, after: random.millis(0, latest), step, lasts }
}
