//! The limits of time that a cluster is set up with: what stands still for a little less than one is to be no
//! matter to it, and for a little more may be.

use crate::random::Random;
use crate::scenario::Scenario;
use std::time::Duration;

/// A limit of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Limit {
    /// A lease lapses that is not renewed.
    Lease,
    /// A reader waits no longer for an offer, or for room.
    HandoffWait,
    /// Or for the answer to its release.
    AnswerWait,
    /// A release is repeated.
    ReleaseRetry,
    /// The longest that an offer lives.
    OfferMax,
    /// A sign of life is asked for.
    Heartbeat,
    /// The other end of a session is lost.
    Silence,
    /// A worker sees that it stood still itself.
    StoodStill,
}

/// All of them.
pub(crate) const LIMITS: [Limit; 8] = [
    Limit::Lease,
    Limit::HandoffWait,
    Limit::AnswerWait,
    Limit::ReleaseRetry,
    Limit::OfferMax,
    Limit::Heartbeat,
    Limit::Silence,
    Limit::StoodStill,
];

/// How much less or more than a limit: messages are on their way for about as long.
const BESIDE: (u64, u64) = (100, 4000);

/// A time just beside a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Beside {
    pub(crate) limit: Limit,
    pub(crate) over: bool,
}

impl Limit {
    fn of(self, scenario: &Scenario) -> Duration {
        match self {
            Limit::Lease => scenario.lease,
            Limit::HandoffWait => scenario.handoff_wait,
            Limit::AnswerWait => scenario.answer_wait,
            Limit::ReleaseRetry => scenario.release_retry,
            Limit::OfferMax => scenario.offer_max,
            Limit::Heartbeat => scenario.heartbeat,
            Limit::Silence => scenario.silence_max,
            Limit::StoodStill => scenario.stood_still(),
        }
    }
}

impl Beside {
    /// A time beside a limit that is drawn.
    pub(crate) fn draw(random: &mut Random, scenario: &Scenario) -> (Self, Duration) {
        let (limit, over) = (random.pick(&LIMITS), random.chance(500));
        let (time, beside) = (limit.of(scenario), random.micros(BESIDE.0, BESIDE.1));
        (Self { limit, over }, if over { time + beside } else { time.saturating_sub(beside) })
    }
}
