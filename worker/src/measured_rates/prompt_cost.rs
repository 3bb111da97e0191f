//! What computing prompts costs: so many seconds for each token, and for each position that a token attends to. So the
//! end of a long prompt costs more than its beginning. Both numbers are fitted to measured steps, by least squares in
//! which older steps weigh less.

use std::ops::Range;

/// What is left of the weight of a measurement after the next one: enough for the steps of a long prompt or two.
const KEPT: f64 = 0.97;
/// Steps in which tokens and attended positions are in a proportion more even than that say nothing of what either
/// costs.
const SPREAD_MIN: f64 = 0.01;

/// What computing prompts costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PromptCost {
    /// Seconds of a token.
    pub(crate) token_s: f64,
    /// Seconds of a position that a token attends to.
    pub(crate) attended_s: f64,
}

impl PromptCost {
    /// Predicts how long it takes to compute these positions of a prompt.
    pub(crate) fn seconds(&self, positions: Range<u32>) -> f32 {
        (f64::from(positions.end - positions.start) * self.token_s + attended(&positions) * self.attended_s) as f32
    }
}

/// Positions that those of the range attend to, all together.
fn attended(positions: &Range<u32>) -> f64 {
    let (start, end) = (f64::from(positions.start), f64::from(positions.end));
    (end - start) * (start + end) / 2.0
}

/// Measured steps: moments of their tokens, the positions that these attend to, and the seconds that
/// they took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    tokens: [f64; 2],
    attended: [f64; 2],
    both: f64,
}

impl Steps {
    /// A step that computed these positions, of one sequence each, took so long.
    pub(super) fn measured(&mut self, spans: impl Iterator<Item = Range<u32>>, seconds: f64) {
        let add = |(tokens, sum), span: Range<u32>| (tokens + f64::from(span.end - span.start), sum + attended(&span));
        let (tokens, attended) = spans.fold((0.0, 0.0), add);
        let keep = |moment: &mut f64, newest: f64| *moment = *moment * KEPT + newest;
        keep(&mut self.tokens[0], tokens * tokens);
        keep(&mut self.tokens[1], tokens * seconds);
        keep(&mut self.attended[0], attended * attended);
        keep(&mut self.attended[1], attended * seconds);
        keep(&mut self.both, tokens * attended);
    }

    /// Returns what fits them best. `None`: there was none.
    pub(super) fn cost(&self) -> Option<PromptCost> {
        let Self { tokens: [tt, ts], attended: [aa, as_], both } = *self;
        if tt == 0.0 {
            return None;
        }
        let determinant = tt * aa - both * both;
        let (token_s, attended_s) = ((ts * aa - as_ * both) / determinant, (as_ * tt - ts * both) / determinant);
        let fits = determinant > SPREAD_MIN * tt * aa && token_s >= 0.0 && attended_s >= 0.0;
        Some(if fits { PromptCost { token_s, attended_s } } else { PromptCost { token_s: ts / tt, attended_s: 0.0 } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: PromptCost = PromptCost { token_s: 2e-4, attended_s: 5e-8 };

    /// A prompt of so many tokens, in chunks of 512; each step takes a part more or less than it should.
    fn compute(steps: &mut Steps, tokens: u32, noise: f64) {
        for (number, start) in (0..tokens).step_by(512).enumerate() {
            let span = start..tokens.min(start + 512);
            let noise = if number % 2 == 0 { 1.0 + noise } else { 1.0 - noise };
            steps.measured([span.clone()].into_iter(), f64::from(TRUE.seconds(span)) * noise);
        }
    }

    #[track_caller]
    fn check(steps: &Steps, tokens: u32, off_max: f32) {
        let (predicted, is) = (steps.cost().expect("steps were measured").seconds(0..tokens), TRUE.seconds(0..tokens));
        assert!((predicted / is - 1.0).abs() < off_max, "{tokens} tokens: {predicted} s predicted, {is} s in truth");
    }

    #[test]
    fn the_end_of_a_long_prompt_is_dearer_than_its_beginning() {
        let mut steps = Steps::default();
        assert_eq!(steps.cost(), None);
        compute(&mut steps, 16_384, 0.0);
        [512, 1024, 4096, 16_384, 32_768].into_iter().for_each(|tokens| check(&steps, tokens, 0.001));
        compute(&mut steps, 16_384, 0.1);
        [1024, 4096, 16_384, 32_768].into_iter().for_each(|tokens| check(&steps, tokens, 0.2));
    }

    #[test]
    fn prompts_of_one_length_say_how_long_such_ones_take() {
        let mut steps = Steps::default();
        (0..100).for_each(|_| compute(&mut steps, 512, 0.1));
        check(&steps, 512, 0.11);
        assert_eq!(steps.cost().expect("steps were measured").attended_s, 0.0);
    }
}
