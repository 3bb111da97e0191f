//! How fast this worker was lately. Placement and the decision about loads predict with it.

mod prompt_cost;

pub(crate) use prompt_cost::PromptCost;

use domain::Time;
use domain::plan::StepOutput;
use kv_manager::tiers::Tier;
use prompt_cost::Steps;
use scheduler::Work;
use std::ops::Range;
use std::time::Duration;

/// Weight of the newest measurement in the moving averages.
const NEWEST: f32 = 0.2;
/// A step of at least this many prompt rows says how fast prompts are.
const PROMPT_ROWS_MIN: u32 = 16;
/// Of so many prompts that are computed because their tiers are slower, one is loaded as well.
const PROBE_EVERY: u32 = 16;

/// Moving averages. 0: nothing was measured yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) prefill_tokens_per_s: f32,
    /// The steps behind that.
    steps: Steps,
    pub(crate) decode_step_s: f32,
    pub(crate) fetch_bytes_per_s: f32,
    /// By [`Tier`].
    tiers: [TierRate; Tier::ALL.len()],
    /// Prompts that were computed because their tiers are slower, since the last one that was loaded as well.
    slower_prompts: u32,
}

/// How fast a tier is read. A read that waits behind others is no slower for that, so bytes are counted over the time
/// in which the tier had any read to do.
#[derive(Clone, Copy, Debug, Default)]
struct TierRate {
    bytes_per_s: f32,
    /// Bytes of a measurement, on average.
    measured: f32,
    /// Bytes that were requested and neither arrived nor failed.
    requested: u64,
    /// Bytes that arrived since `since`.
    arrived: u64,
    /// When the last measurement ended, or the tier got something to do.
    since: Time,
    /// When the last bytes arrived.
    last: Time,
}

impl TierRate {
    /// Ends a measurement. It weighs by its bytes: a small one measures mostly the time that any read takes.
    fn measure(&mut self) {
        let (bytes, seconds) = (self.arrived as f32, self.last.since(self.since).as_secs_f32());
        if bytes == 0.0 || seconds == 0.0 {
            return;
        }
        if self.bytes_per_s == 0.0 {
            (self.bytes_per_s, self.measured) = (bytes / seconds, bytes);
        } else {
            let weight = NEWEST * (bytes / self.measured).min(1.0);
            self.bytes_per_s += weight * (bytes / seconds - self.bytes_per_s);
            self.measured += weight * (bytes - self.measured);
        }
        (self.arrived, self.since) = (0, self.last);
    }
}

impl Rates {
    /// Measures a step.
    pub(crate) fn step(&mut self, work: &[Work], output: &StepOutput) {
        let rows: u32 = work.iter().map(|work| work.count).sum();
        let decodes = work.iter().filter(|work| work.count == 1).count() as u32;
        let seconds = output.elapsed.as_secs_f32();
        if rows == decodes {
            average(&mut self.decode_step_s, seconds);
        } else if rows - decodes >= PROMPT_ROWS_MIN && seconds > 0.0 {
            average(&mut self.prefill_tokens_per_s, rows as f32 / seconds);
            self.steps.measured(work.iter().map(|work| work.start..work.start + work.count), f64::from(seconds));
        }
    }

    /// Measures a fetch that was on the wire for so long.
    pub(crate) fn fetch(&mut self, bytes: u64, wire: Duration) {
        if !wire.is_zero() && bytes > 0 {
            average(&mut self.fetch_bytes_per_s, bytes as f32 / wire.as_secs_f32());
        }
    }

    /// Notes that so many bytes were requested of a tier.
    pub(crate) fn note_requested(&mut self, now: Time, tier: Tier, bytes: u64) {
        let rate = &mut self.tiers[tier as usize];
        if rate.requested == 0 {
            (rate.arrived, rate.since) = (0, now);
        }
        rate.requested += bytes;
    }

    /// Notes that requested bytes arrived, or did not. `was_last`: they were the last of their load.
    pub(crate) fn note_read(&mut self, now: Time, tier: Tier, bytes: u64, arrived: bool, was_last: bool) {
        let rate = &mut self.tiers[tier as usize];
        rate.requested -= bytes;
        if arrived {
            (rate.arrived, rate.last) = (rate.arrived + bytes, now);
        }
        if was_last || rate.requested == 0 {
            rate.measure();
        }
    }

    /// Returns what computing prompts costs. Infinite as long as it was not measured, so that prompts are loaded.
    pub(crate) fn cost(&self) -> PromptCost {
        self.steps.cost().unwrap_or(PromptCost { token_s: f64::INFINITY, attended_s: 0.0 })
    }

    /// Predicts how many seconds it takes to compute these positions of a prompt.
    pub(crate) fn compute_s(&self, positions: Range<u32>) -> f32 {
        if positions.is_empty() { 0.0 } else { self.cost().seconds(positions) }
    }

    /// Predicts how many seconds it takes to load so many bytes from tiers that are read in parallel, behind what was
    /// requested of them before. 0 for a tier that was never measured, so that it is tried.
    pub(crate) fn load_s(&self, bytes: &[(Tier, u64)]) -> f32 {
        let seconds = |&(tier, bytes): &(Tier, u64)| {
            let TierRate { bytes_per_s, requested, .. } = self.tiers[tier as usize];
            if bytes_per_s == 0.0 || bytes == 0 { 0.0 } else { (requested + bytes) as f32 / bytes_per_s }
        };
        bytes.iter().map(seconds).fold(0.0, f32::max)
    }

    /// Returns the tokens per second that the tier delivered lately, where a token takes so many bytes. 0: none yet.
    pub(crate) fn tokens_per_s(&self, tier: Tier, token_bytes: f32) -> f32 {
        self.tiers[tier as usize].bytes_per_s / token_bytes
    }

    /// Predicts how many seconds it takes to fetch so many bytes from another worker. 0 as long as no fetch was
    /// measured, so that one is tried.
    pub(crate) fn fetch_s(&self, bytes: u64) -> f32 {
        if self.fetch_bytes_per_s == 0.0 { 0.0 } else { bytes as f32 / self.fetch_bytes_per_s }
    }

    /// Returns whether a load reads from the tier.
    pub(crate) fn is_reading(&self, tier: Tier) -> bool {
        self.tiers[tier as usize].requested > 0
    }

    /// Returns whether a tier is read faster than the other one, or one of them was never measured.
    pub(crate) fn may_be_faster(&self, tier: Tier, than: Tier) -> bool {
        let [one, other] = [tier, than].map(|tier| self.tiers[tier as usize].bytes_per_s);
        one == 0.0 || other == 0.0 || one > other
    }

    /// Returns the seconds of a token of a running sequence. Infinite as long as none was measured.
    pub(crate) fn decode_s(&self) -> f32 {
        if self.decode_step_s == 0.0 { f32::INFINITY } else { self.decode_step_s }
    }

    /// Returns whether the next prompt whose tiers are slower than computing is to be loaded as well. A tier that is
    /// never read is never measured again, however fast it has become.
    pub(crate) fn probe_is_pending(&self) -> bool {
        self.slower_prompts + 1 == PROBE_EVERY
    }

    /// Counts a prompt whose tiers are slower than computing.
    pub(crate) fn count_slower_tiers(&mut self) {
        self.slower_prompts = (self.slower_prompts + 1) % PROBE_EVERY;
    }
}

fn average(value: &mut f32, newest: f32) {
    *value = if *value == 0.0 { newest } else { *value + NEWEST * (newest - *value) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1000;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Returns a load of so many blocks, from `begun` on: each comes after `each_ms`, and the first one `later_ms`
    /// after that.
    fn load(rates: &mut Rates, begun: u64, blocks: u64, each_ms: u64, later_ms: u64) -> u64 {
        (0..blocks).for_each(|_| rates.note_requested(at(begun), Tier::Disk, BLOCK));
        let end = |block: u64| begun + later_ms + block * each_ms;
        (1..=blocks).for_each(|block| rates.note_read(at(end(block)), Tier::Disk, BLOCK, true, block == blocks));
        end(blocks)
    }

    fn load_s(rates: &Rates, blocks: u64) -> f32 {
        rates.load_s(&[(Tier::Disk, blocks * BLOCK)])
    }

    #[test]
    fn a_tier_that_was_slow_is_measured_anew_now_and_then() {
        let mut rates = Rates::default();
        let mut now = load(&mut rates, 1000, 1, 10_000, 0);
        let slow = load_s(&rates, 1);
        let tried: Vec<u32> = (1..=2 * PROBE_EVERY)
            .filter(|_| {
                let probe = rates.probe_is_pending();
                rates.count_slower_tiers();
                probe
            })
            .collect();
        assert_eq!(tried, [PROBE_EVERY, 2 * PROBE_EVERY]);
        tried.iter().for_each(|_| now = load(&mut rates, now, 1, 10, 0));
        assert!(load_s(&rates, 1) < slow / 100.0);
    }

    #[test]
    fn loads_of_a_block_say_little_of_how_long_one_of_many_takes() {
        let mut rates = Rates::default();
        // Each read takes 5 ms until its first byte comes, and a block comes every ms.
        let mut now = load(&mut rates, 1000, 200, 1, 5);
        let before = load_s(&rates, 200);
        (0..20).for_each(|_| now = load(&mut rates, now + 100, 1, 1, 5));
        assert!((before..before * 1.1).contains(&load_s(&rates, 200)), "{before} and {}", load_s(&rates, 200));
        // What it really became slower by is learnt all the same.
        (0..20).for_each(|_| now = load(&mut rates, now, 200, 3, 5));
        assert!(load_s(&rates, 200) > before * 2.5);
    }

    #[test]
    fn what_waits_for_others_is_predicted_to_take_longer_and_measured_as_fast() {
        let mut rates = Rates::default();
        load(&mut rates, 1000, 100, 1, 0);
        assert_eq!(load_s(&rates, 100), 0.1);
        // Four loads at once, one after the other in the tier.
        for number in 1..=4_u8 {
            (0..100).for_each(|_| rates.note_requested(at(2000), Tier::Disk, BLOCK));
            assert_eq!(load_s(&rates, 100), 0.1 * f32::from(number + 1));
        }
        (1..=400).for_each(|block| rates.note_read(at(2000 + block), Tier::Disk, BLOCK, true, block % 100 == 0));
        assert!((load_s(&rates, 100) - 0.1).abs() < 0.001, "{}", load_s(&rates, 100));
        // What is given up says nothing.
        (0..100).for_each(|_| rates.note_requested(at(5000), Tier::Disk, BLOCK));
        (0..100).for_each(|_| rates.note_read(at(9000), Tier::Disk, BLOCK, false, true));
        assert!((load_s(&rates, 100) - 0.1).abs() < 0.001, "{}", load_s(&rates, 100));
    }
}
