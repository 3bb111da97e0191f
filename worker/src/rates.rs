//! How fast this worker was lately: what placement predicts with.

mod cost;

pub(crate) use cost::Cost;

use cost::Steps;
use domain::Time;
use domain::plan::StepOutput;
use kv_manager::tiers::Tier;
use scheduler::Work;
use std::ops::Range;
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
    /// The steps behind that.
    steps: Steps,
    pub(crate) decode_step_s: f32,
    pub(crate) fetch_bytes_per_s: f32,
    /// By [`Tier`].
    flows: [Flow; Tier::ALL.len()],
    /// Prompts since the last whose tiers were tried though they are slower.
    computed: u32,
}

/// How fast a tier is read. What waits for others in it is no slower for that, so bytes are counted over the time
/// in which it had anything to do.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    bytes_per_s: f32,
    /// Bytes of the measurements, on average.
    measured: f32,
    /// Bytes that were asked for and neither came nor failed.
    asked: u64,
    /// Bytes that came since the last measurement, or since there was nothing to do, and when the last of them did.
    came: u64,
    since: Time,
    last: Time,
}

impl Flow {
    /// Takes a measurement. It weighs by its bytes: of a small one most is the time that any read takes, however short.
    fn measure(&mut self) {
        let (bytes, seconds) = (self.came as f32, self.last.since(self.since).as_secs_f32());
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
        (self.came, self.since) = (0, self.last);
    }
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
            self.steps.measured(work.iter().map(|work| work.start..work.start + work.count), f64::from(seconds));
        }
    }

    pub(crate) fn fetch(&mut self, bytes: u64, wire: Duration) {
        if !wire.is_zero() && bytes > 0 {
            average(&mut self.fetch_bytes_per_s, bytes as f32 / wire.as_secs_f32());
        }
    }

    /// So many bytes are asked of a tier.
    pub(crate) fn asked(&mut self, now: Time, tier: Tier, bytes: u64) {
        let flow = &mut self.flows[tier as usize];
        if flow.asked == 0 {
            (flow.came, flow.since) = (0, now);
        }
        flow.asked += bytes;
    }

    /// So many bytes that were asked of a tier came, or did not. `over`: they were the last of their load.
    pub(crate) fn read(&mut self, now: Time, tier: Tier, bytes: u64, came: bool, over: bool) {
        let flow = &mut self.flows[tier as usize];
        flow.asked -= bytes;
        if came {
            (flow.came, flow.last) = (flow.came + bytes, now);
        }
        if over || flow.asked == 0 {
            flow.measure();
        }
    }

    /// What computing prompts costs. As long as it was not measured, they are rather loaded.
    pub(crate) fn cost(&self) -> Cost {
        self.steps.cost().unwrap_or(Cost { token_s: f64::INFINITY, attended_s: 0.0 })
    }

    /// How long computing these positions of a prompt takes.
    pub(crate) fn compute_s(&self, positions: Range<u32>) -> f32 {
        if positions.is_empty() { 0.0 } else { self.cost().seconds(positions) }
    }

    /// How long loading so many bytes takes, from tiers that are read side by side, behind what they were asked
    /// for before. What was never measured is tried: it is predicted to take no time.
    pub(crate) fn load_s(&self, bytes: &[(Tier, u64)]) -> f32 {
        let seconds = |&(tier, bytes): &(Tier, u64)| {
            let Flow { bytes_per_s, asked, .. } = self.flows[tier as usize];
            if bytes_per_s == 0.0 || bytes == 0 { 0.0 } else { (asked + bytes) as f32 / bytes_per_s }
        };
        bytes.iter().map(seconds).fold(0.0, f32::max)
    }

    /// Tokens a second that lately came from the tier, where each has so many bytes there. 0: none did yet.
    pub(crate) fn tokens_per_s(&self, tier: Tier, token_bytes: f32) -> f32 {
        self.flows[tier as usize].bytes_per_s / token_bytes
    }

    /// How long fetching so many bytes from another worker takes. What was never measured is tried: it is
    /// predicted to take no time.
    pub(crate) fn fetch_s(&self, bytes: u64) -> f32 {
        if self.fetch_bytes_per_s == 0.0 { 0.0 } else { bytes as f32 / self.fetch_bytes_per_s }
    }

    /// Whether a load reads from the tier.
    pub(crate) fn is_asked(&self, tier: Tier) -> bool {
        self.flows[tier as usize].asked > 0
    }

    /// Whether a tier is read faster than the other one, or nobody knows.
    pub(crate) fn may_be_faster(&self, tier: Tier, than: Tier) -> bool {
        let [one, other] = [tier, than].map(|tier| self.flows[tier as usize].bytes_per_s);
        one == 0.0 || other == 0.0 || one > other
    }

    /// How long a token of a running sequence takes. As long as it was not measured, for ever.
    pub(crate) fn decode_s(&self) -> f32 {
        if self.decode_step_s == 0.0 { f32::INFINITY } else { self.decode_step_s }
    }

    /// A prompt is to be computed, since its tiers are slower. Whether they are tried all the same, beside that:
    /// what is never read is never measured again either, however fast it has become.
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

    const BLOCK: u64 = 1000;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// A load of so many blocks, from `begun` on: each comes after `each_ms`, and the first one `later_ms` after that.
    fn load(rates: &mut Rates, begun: u64, blocks: u64, each_ms: u64, later_ms: u64) -> u64 {
        (0..blocks).for_each(|_| rates.asked(at(begun), Tier::Disk, BLOCK));
        let end = |block: u64| begun + later_ms + block * each_ms;
        (1..=blocks).for_each(|block| rates.read(at(end(block)), Tier::Disk, BLOCK, true, block == blocks));
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
        let tried: Vec<u32> = (1..=2 * TRIED_EVERY).filter(|_| rates.tries_slower()).collect();
        assert_eq!(tried, [TRIED_EVERY, 2 * TRIED_EVERY]);
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
            (0..100).for_each(|_| rates.asked(at(2000), Tier::Disk, BLOCK));
            assert_eq!(load_s(&rates, 100), 0.1 * f32::from(number + 1));
        }
        (1..=400).for_each(|block| rates.read(at(2000 + block), Tier::Disk, BLOCK, true, block % 100 == 0));
        assert!((load_s(&rates, 100) - 0.1).abs() < 0.001, "{}", load_s(&rates, 100));
        // What is given up says nothing.
        (0..100).for_each(|_| rates.asked(at(5000), Tier::Disk, BLOCK));
        (0..100).for_each(|_| rates.read(at(9000), Tier::Disk, BLOCK, false, true));
        assert!((load_s(&rates, 100) - 0.1).abs() < 0.001, "{}", load_s(&rates, 100));
    }
}
