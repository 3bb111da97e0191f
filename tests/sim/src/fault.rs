//! What can go wrong, and the plan of a seed: which faults, when, for how long. What they do is in `fault_effects`.

use crate::limit::Beside;
use crate::random::Random;
use crate::scenario::Scenario;
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
    /// A step fails in one of its layers, or one of its spans does at its end.
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
    /// An operator drains a worker, and lets it take work again.
    OperatorDrain,
    /// An operator changes the role of a worker, and changes it back.
    OperatorRole,
    /// The directory shows things late and in another order.
    DirectoryLags,
    /// It shows things again.
    DirectoryRepeats,
    /// It does not list a worker that lives.
    DirectoryForgets,
    /// It lists a worker that never was, or one where it is not, or an earlier life of one.
    DirectoryLies,
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

/// Those that an operator wants. They are drawn apart, so that all else of a seed is as it was without them.
pub(crate) const OF_OPERATORS: [FaultKind; 2] = [FaultKind::OperatorDrain, FaultKind::OperatorRole];

/// Those of the directory, drawn apart as well.
pub(crate) const OF_DIRECTORY: [FaultKind; 4] =
    [FaultKind::DirectoryLags, FaultKind::DirectoryRepeats, FaultKind::DirectoryForgets, FaultKind::DirectoryLies];

/// A fault of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// Not before this time of the phase that hurts.
    pub(crate) after: Duration,
    /// When a worker is in this step; `None`: at once, at a worker that is drawn then.
    pub(crate) step: Option<Step>,
    pub(crate) lasts: Duration,
    /// That is just beside a limit.
    pub(crate) beside: Option<Beside>,
}

/// What the faults of a seed are mostly about: steps that are short or rare are reached by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Theme {
    /// Everything.
    Mixed,
    /// Running sequences move away from workers that drain.
    Moves,
    /// Fetches are cancelled while they read.
    Cancels,
    /// Workers come back at once, and messages of their earlier lives later.
    Restarts,
}

impl Theme {
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.index(10) {
            0..4 => Theme::Mixed,
            4..7 => Theme::Moves,
            7..8 => Theme::Cancels,
            _ => Theme::Restarts,
        }
    }

    /// What brings its steps about: a fault and the step it is aimed at.
    fn opening(self, random: &mut Random) -> Option<(FaultKind, Step)> {
        let reading = [Step::Reading, Step::SliceRead, Step::Completed];
        match self {
            Theme::Mixed => None,
            Theme::Moves => Some((FaultKind::WorkerDrain, Step::Decoding)),
            Theme::Cancels if random.chance(500) => Some((FaultKind::HangUp, random.pick(&reading))),
            Theme::Cancels => Some((FaultKind::StepFails, Step::Offering)),
            Theme::Restarts => Some((FaultKind::WorkerCrash, random.pick(self.steps()))),
        }
    }

    /// The steps that it brings about.
    fn steps(self) -> &'static [Step] {
        match self {
            Theme::Mixed => &STEPS,
            Theme::Restarts => &[Step::Leased, Step::Answering, Step::Offering, Step::Completed],
            // The short one more often.
            Theme::Moves => &[
                Step::Giving,
                Step::TakerWaiting,
                Step::TakerReading,
                Step::TakerAnswering,
                Step::TakerAnswering,
                Step::TakerAnswering,
                Step::Draining,
            ],
            Theme::Cancels => &[Step::Quiescing, Step::Completed, Step::SliceRead, Step::WaitingRoom],
        }
    }
}

/// Processes stand still one after the other, each for less than so long, from a time on.
pub(crate) fn pauses(random: &mut Random, shortest: Duration, begins: Duration, hurts: Duration) -> Vec<Fault> {
    let kinds = [FaultKind::WorkerStuck, FaultKind::WorkerStuck, FaultKind::RouterStuck];
    let count = random.range(1, 4) as u32;
    let longest = shortest.as_micros() as u64;
    let pause = |number| Fault {
        kind: random.pick(&kinds),
        after: begins + (hurts - begins) * number / count,
        step: None,
        lasts: random.micros(longest / 2, longest),
        beside: None,
    };
    (0..count).map(pause).collect()
}

/// What operators ask from a time on, at random times and in random steps.
pub(crate) fn operators(random: &mut Random, theme: Theme, scenario: &Scenario, begins: Duration) -> Vec<Fault> {
    let count = random.range(1, 8);
    let ask = |_| {
        let kind = random.pick(&OF_OPERATORS);
        let Fault { after, step, .. } = draw(random, theme, scenario);
        Fault { kind, after: after.max(begins), step, lasts: random.millis(20, 900), beside: None }
    };
    (0..count).map(ask).collect()
}

/// What is wrong with the directory from a time on.
pub(crate) fn directory(random: &mut Random, begins: Duration, hurts: Duration) -> Vec<Fault> {
    let count = random.range(1, 6);
    let fault = |_| {
        let after = random.micros(begins.as_micros() as u64, hurts.as_micros() as u64);
        Fault { kind: random.pick(&OF_DIRECTORY), after, step: None, lasts: random.millis(20, 900), beside: None }
    };
    (0..count).map(fault).collect()
}

/// The faults of a seed. Nothing goes wrong in one of twelve, or only what harms nobody.
pub(crate) fn plan(random: &mut Random, theme: Theme, scenario: &Scenario) -> Vec<Fault> {
    let hurts = scenario.hurts;
    if random.chance(80) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    if theme == Theme::Restarts {
        let kind = random.pick(&[FaultKind::MessageTwice, FaultKind::MessageDelay]);
        faults.push(Fault { kind, after: Duration::ZERO, step: None, lasts: hurts, beside: None });
    }
    for _ in 0..random.range(1, 12) {
        if let Some((kind, step)) = theme.opening(random).filter(|_| random.chance(250)) {
            faults.push(Fault { kind, step: Some(step), ..draw(random, theme, scenario) });
        }
        faults.push(draw(random, theme, scenario));
    }
    faults
}

fn draw(random: &mut Random, theme: Theme, scenario: &Scenario) -> Fault {
    let hurts_ms = scenario.hurts.as_millis() as u64;
    let of_messages = random.chance(150);
    let kind = if of_messages { random.pick(&OF_MESSAGES) } else { random.pick(&AIMED) };
    let steps = if random.chance(700) { theme.steps() } else { &STEPS };
    let step = (!of_messages && random.chance(800)).then(|| random.pick(steps));
    let latest = if step.is_some() { hurts_ms / 2 } else { hurts_ms };
    let lasts = match kind {
        FaultKind::WorkerStuck | FaultKind::RouterStuck if random.chance(500) => random.millis(5, 100),
        FaultKind::WorkerCrash if theme == Theme::Restarts => random.millis(1, 10),
        _ => random.millis(20, 900),
    };
    let after = random.millis(0, latest);
    if matches!(kind, FaultKind::WorkerStuck | FaultKind::RouterStuck) && random.chance(500) {
        let (beside, lasts) = Beside::draw(random, scenario);
        // A long one has to begin in time to be over before all is healed.
        let after = after.min(scenario.hurts.saturating_sub(lasts));
        let step = step.filter(|_| lasts < scenario.hurts / 2);
        return Fault { kind, after, step, lasts, beside: Some(beside) };
    }
    Fault { kind, after, step, lasts, beside: None }
}
