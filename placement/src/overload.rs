//! When a refused client should come back: how long the queues of the workers take, predicted.
//!
//! A request that is placed now goes to a pair of a prefill and a decode worker, or to a decode worker alone. It waits
//! until the prompts before it are computed, and until a running sequence makes room for it. How many tokens a running
//! sequence still makes is not known; it is taken to be as long as answers lately were.

use crate::config::HandoffPolicy;
use std::time::Duration;

/// The soonest that a refused client is asked to come back.
pub const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// The latest.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// Tokens of an answer, as long as none has ended.
const ANSWER_TOKENS_ASSUMED: f64 = 128.0;
/// Weight of the newest answer in the mean.
const NEWEST_WEIGHT: f64 = 1.0 / 16.0;

/// How many tokens answers lately had, on average.
#[derive(Debug)]
pub(crate) struct AnswerLength(f64);

impl Default for AnswerLength {
    fn default() -> Self {
        Self(ANSWER_TOKENS_ASSUMED)
    }
}

impl AnswerLength {
    /// Counts a sequence that ended regularly after so many tokens.
    pub(crate) fn count(&mut self, tokens: f64) {
        self.0 += (tokens - self.0) * NEWEST_WEIGHT;
    }

    /// Returns the mean.
    pub(crate) fn tokens(&self) -> f64 {
        self.0
    }
}

/// What a worker has to do, and how fast it does it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Prompt tokens that it has to compute.
    pub(crate) queued_tokens: u64,
    /// Prompt tokens that it computes in a second.
    pub(crate) prefill_tokens_per_s: f64,
    /// Sequences that wait.
    pub(crate) waiting: u32,
    /// Sequences that run.
    pub(crate) running: u32,
    /// Seconds of a decode step.
    pub(crate) decode_step_s: f64,
}

impl Load {
    /// Seconds until it has computed the prompts that it has.
    fn prompts_s(&self) -> f64 {
        self.queued_tokens as f64 / self.prefill_tokens_per_s
    }

    /// Seconds until so many running sequences have ended that all that wait run, and one more.
    fn room_s(&self, answer_tokens: f64) -> f64 {
        if self.running == 0 {
            return 0.0;
        }
        let between_ends_s = answer_tokens * self.decode_step_s / f64::from(self.running);
        f64::from(self.waiting + 1) * between_ends_s
    }
}

/// Predicts after how long a request that is refused now would find room: whole seconds, rounded up, within
/// [`RETRY_AFTER_MIN`] and [`RETRY_AFTER_MAX`].
pub(crate) fn retry_after(prefill: &[Load], decode: &[Load], handoff: HandoffPolicy, answer_tokens: f64) -> Duration {
    let least = |seconds: &mut dyn Iterator<Item = f64>| seconds.min_by(f64::total_cmp);
    let room_s = least(&mut decode.iter().map(|load| load.room_s(answer_tokens)));
    let prompts_s = least(&mut prefill.iter().map(Load::prompts_s)).filter(|_| handoff != HandoffPolicy::Never);
    let pair_s = prompts_s.zip(room_s).map(|(prompts_s, room_s)| prompts_s + room_s);
    let goes_alone = handoff != HandoffPolicy::Always || prefill.is_empty();
    let alone_s = least(&mut decode.iter().map(|load| load.prompts_s() + load.room_s(answer_tokens)));
    let least_s = pair_s.into_iter().chain(alone_s.filter(|_| goes_alone)).min_by(f64::total_cmp).unwrap_or(0.0);
    let retry_after = Duration::try_from_secs_f64(least_s.ceil()).unwrap_or(RETRY_AFTER_MAX);
    retry_after.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
}
