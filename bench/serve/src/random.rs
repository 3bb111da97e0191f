//! Where a run's randomness comes from: one seed, and a stream of its own for every purpose, so that what one
//! request draws never depends on when another was sent.

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and equal on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// What a stream of random numbers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// When requests are due.
    Arrivals,
    /// Lengths, prefix group and think times of the conversation with this index.
    Conversation(u64),
    /// The text of a prefix group.
    Prefix(u64),
    /// The text of a turn of a conversation.
    Turn(u64, u32),
    /// The text of a trace's block.
    Block(u64),
    /// The text of the rest of a trace's request, which no block covers.
    Rest(u64),
    /// Lengths of a warm-up request, or its text.
    WarmUp(u64),
}

impl Random {
    /// Makes the stream of `seed` for `purpose`.
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        let words = match purpose {
            Purpose::Arrivals => [1, 0, 0],
            Purpose::Conversation(index) => [2, index, 0],
            Purpose::Prefix(group) => [3, group, 0],
            Purpose::Turn(index, turn) => [4, index, u64::from(turn)],
            Purpose::Block(id) => [5, id, 0],
            Purpose::Rest(index) => [6, index, 0],
            Purpose::WarmUp(index) => [7, index, 0],
        };
        words.into_iter().fold(Self(seed), |state, word| Self(mix(state.0 ^ mix(word.wrapping_add(GOLDEN)))))
    }

    /// Draws 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Draws a number below `end`, which is not 0. The bias is under `end` / 2^64.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Draws a number in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Draws from the exponential distribution with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Draws from the normal distribution with mean 0 and deviation 1 (Box and Muller, 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_repeatable_and_differ_by_seed_and_purpose() {
        let first = |seed, purpose| Random::new(seed, purpose).bits();
        assert_eq!(first(1, Purpose::Turn(3, 4)), first(1, Purpose::Turn(3, 4)));
        let purposes = [
            Purpose::Arrivals,
            Purpose::Conversation(0),
            Purpose::Conversation(1),
            Purpose::Prefix(0),
            Purpose::Turn(0, 0),
            Purpose::Turn(0, 1),
            Purpose::Turn(1, 0),
            Purpose::Block(0),
            Purpose::Rest(0),
            Purpose::WarmUp(0),
        ];
        let mut seen: Vec<u64> = [0, 1].iter().flat_map(|&seed| purposes.map(|purpose| first(seed, purpose))).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 2 * purposes.len());
    }

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        const DRAWS: u32 = 200_000;
        let seed = 7;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..DRAWS).map(|_| draw()).sum::<f64>() / f64::from(DRAWS);
        let mut random = Random::new(seed, Purpose::Arrivals);
        let exponential = mean(&mut || random.exponential());
        let normal = mean(&mut || random.normal());
        let square = mean(&mut || random.normal().powi(2));
        let below = mean(&mut || random.below(10) as f64);
        // Ten standard errors: the stream is fixed, so this never flickers.
        assert!((exponential - 1.0).abs() < 0.025, "seed {seed}: {exponential}");
        assert!(normal.abs() < 0.025 && (square - 1.0).abs() < 0.035, "seed {seed}: {normal}, {square}");
        assert!((below - 4.5).abs() < 0.07, "seed {seed}: {below}");
    }
}
