//! How fast this worker was lately: what placement predicts with.

use domain::plan::StepOutput;
use kv_manager::tiers::Tier;
use scheduler::Work;
use std::time::Duration;

/// Weight of the newest measurement in the moving averages.
const NEWEST: f32 = 0.2;
/// A step of at least this many prompt rows says how fast prompts are.
const PROMPT_ROWS_MIN: u32 = 16;
/// Of so many prompts that are computed since their tiers are slower, the last is loaded beside that.
const TRIED_EVERY: u32 = 16;

/// Moving averages; 0 where nothing was measured yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) prefill_tokens_per_s: f32,
    pub(crate) decode_step_s: f32,
    pub(crate) fetch_bytes_per_s: f32,
    /// By [`Tier`].
    tier_bytes_per_s: [f32; Tier::ALL.len()],
    /// Prompts since the last whose tiers were tried though they are slower.
    computed: u32,
}

impl Rates {
    pub(crate) fn step(&mut self, work: &[Work], output: &StepOutput) {
        let rows: u32 = work.iter().map(|work| work.count).sum();
        let decodes = work.iter().filter(|work| work.count == 1).count() as u32;
        let seconds = output.elapsed.as_secs_f32();
        if rows == decodes {
            average(&mut self.decode_step_s, seconds);
        } else if rows - decodes >= PROMPT_ROWS_MIN && seconds > 0.0 {
            average(&mut self.prefill_tokens_per_s, rows as f32 / seconds);
        }
    }

    pub(crate) fn fetch(&mut self, bytes: u64, wire: Duration) {
        if !wire.is_zero() && bytes > 0 {
            average(&mut self.fetch_bytes_per_s, bytes as f32 / wire.as_secs_f32());
        }
    }

    /// The part of a load that a tier had took so long, waiting included.
    pub(crate) fn load(&mut self, tier: Tier, bytes: u64, elapsed: Duration) {
        if !elapsed.is_zero() && bytes > 0 {
            average(&mut self.tier_bytes_per_s[tier as usize], bytes as f32 / elapsed.as_secs_f32());
        }
    }

    /// How long computing so many tokens takes. As long as it was not measured, it is rather loaded.
    pub(crate) fn compute_s(&self, tokens: u32) -> f32 {
        if self.prefill_tokens_per_s == 0.0 { f32::INFINITY } else { tokens as f32 / self.prefill_tokens_per_s }
    }

    /// How long loading so many bytes takes, from tiers that are read side by side. What was never measured is tried: it is predicted
    /// to take no time.
    pub(crate) fn load_s(&self, bytes: &[(Tier, u64)]) -> f32 {
        let seconds = |&(tier, bytes): &(Tier, u64)| {
            let bytes_per_s = self.tier_bytes_per_s[tier as usize];
            if bytes_per_s == 0.0 { 0.0 } else { bytes as f32 / bytes_per_s }
        };
        bytes.iter().map(seconds).fold(0.0, f32::max)
    }

    /// A prompt is to be computed, since its tiers are slower. Whether they are tried all the same, beside that: what is never read
    /// is never measured again either, however fast it has become.
    pub(crate) fn tries_slower(&mut self) -> bool {
        self.computed = (self.computed + 1) % TRIED_EVERY;
        self.computed == 0
    }
}

fn average(value: &mut f32, newest: f32) {
    *value = if *value == 0.0 { newest } else { *value + NEWEST * (newest - *value) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_that_was_slow_is_measured_anew_now_and_then() {
        let mut rates = Rates::default();
        rates.load(Tier::Object, 1000, Duration::from_secs(10));
        let slow = rates.load_s(&[(Tier::Object, 1000)]);
        let tried: Vec<u32> = (1..=2 * TRIED_EVERY).filter(|_| rates.tries_slower()).collect();
        assert_eq!(tried, [TRIED_EVERY, 2 * TRIED_EVERY]);
        tried.iter().for_each(|_| rates.load(Tier::Object, 1000, Duration::from_millis(10)));
        assert!(rates.load_s(&[(Tier::Object, 1000)]) < slow / 100.0);
    }
}
