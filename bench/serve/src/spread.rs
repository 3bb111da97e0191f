//! How lengths and think times are spread: constant, uniform or lognormal.

use crate::error::Malformed;
use crate::random::Random;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A distribution of numbers that are not negative, as it is written: `512`, `100-300` (uniform, both ends included) or
/// `512~256` (lognormal with this mean and standard deviation).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread(Kind);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Constant(f64),
    Uniform { low: f64, high: f64 },
    Lognormal { mean: f64, deviation: f64 },
}

impl Spread {
    /// Makes a spread that is always this number.
    pub fn constant(number: f64) -> Self {
        Self(Kind::Constant(number))
    }

    /// Returns the smallest number that is drawn, the mean, and the largest (infinite for lognormal).
    pub fn range(&self) -> (f64, f64, f64) {
        match self.0 {
            Kind::Constant(number) => (number, number, number),
            Kind::Uniform { low, high } => (low, (low + high) / 2.0, high),
            Kind::Lognormal { mean, .. } => (0.0, mean, f64::INFINITY),
        }
    }

    /// Draws a number.
    pub(crate) fn number(&self, random: &mut Random) -> f64 {
        match self.0 {
            Kind::Constant(number) => number,
            Kind::Uniform { low, high } => low + (high - low) * (random.below(1 << 53) as f64 / (1_u64 << 53) as f64),
            Kind::Lognormal { mean, deviation } => {
                let variance = (1.0 + (deviation / mean).powi(2)).ln();
                (mean.ln() - variance / 2.0 + variance.sqrt() * random.normal()).exp()
            }
        }
    }

    /// Draws a count from 1 to `most`.
    pub(crate) fn count(&self, random: &mut Random, most: u32) -> u32 {
        let drawn = match self.0 {
            Kind::Uniform { low, high } => low.floor() + random.below((high.floor() - low.floor()) as u64 + 1) as f64,
            _ => self.number(random).round(),
        };
        drawn.clamp(1.0, f64::from(most)) as u32
    }
}

impl FromStr for Spread {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let wrong =
            || Malformed(format!("{text:?} is no distribution: N, LOW-HIGH (uniform) or MEAN~DEVIATION (lognormal)"));
        let number = |text: &str| {
            let number = text.trim().parse::<f64>().map_err(|_| wrong())?;
            if number.is_finite() && (0.0..1e12).contains(&number) { Ok(number) } else { Err(wrong()) }
        };
        if let Some((mean, deviation)) = text.split_once('~') {
            let (mean, deviation) = (number(mean)?, number(deviation)?);
            return if mean > 0.0 { Ok(Self(Kind::Lognormal { mean, deviation })) } else { Err(wrong()) };
        }
        if let Some((low, high)) = text.split_once('-') {
            let (low, high) = (number(low)?, number(high)?);
            return if low <= high { Ok(Self(Kind::Uniform { low, high })) } else { Err(wrong()) };
        }
        Ok(Self(Kind::Constant(number(text)?)))
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Constant(number) => write!(f, "{number}"),
            Kind::Uniform { low, high } => write!(f, "{low}-{high}"),
            Kind::Lognormal { mean, deviation } => write!(f, "{mean}~{deviation}"),
        }
    }
}

impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn spread(text: &str) -> Spread {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn they_are_written_as_they_are_read() {
        for text in ["512", "100-300", "512~256", "0.5", "0-2.5"] {
            assert_eq!(spread(text).to_string(), text);
        }
        for text in ["", "x", "-1", "3-1", "1~", "~1", "0~1", "1-2-3", "nan", "inf", "1e13"] {
            assert!(text.parse::<Spread>().is_err(), "{text}");
        }
    }

    #[test]
    fn counts_stay_in_their_range_and_reach_its_ends() {
        let mut random = Random::new(3, Purpose::Arrivals);
        let mut counts =
            |text: &str, most| (0..2000).map(|_| spread(text).count(&mut random, most)).collect::<Vec<_>>();
        let uniform = counts("3-6", 100);
        assert_eq!((uniform.iter().min(), uniform.iter().max()), (Some(&3), Some(&6)));
        assert!(counts("0", 100).iter().all(|&count| count == 1));
        assert!(counts("7", 5).iter().all(|&count| count == 5));
        assert!(counts("10~100", 50).iter().all(|count| (1..=50).contains(count)));
    }

    #[test]
    fn lognormal_has_the_mean_and_the_deviation_that_it_says() {
        const DRAWS: u32 = 200_000;
        let seed = 5;
        let mut random = Random::new(seed, Purpose::Arrivals);
        let draws: Vec<f64> = (0..DRAWS).map(|_| spread("100~50").number(&mut random)).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(DRAWS);
        let deviation = (draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / f64::from(DRAWS)).sqrt();
        assert!((mean - 100.0).abs() < 1.0 && (deviation - 50.0).abs() < 2.0, "seed {seed}: {mean}, {deviation}");
    }
}
