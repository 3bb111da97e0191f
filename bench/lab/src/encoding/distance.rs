//! How far distributions of the next token are from those that they should be.

use domain::Token;

/// Of one encoding, over all contexts.
#[derive(Default)]
pub(super) struct Distance {
    /// Of each position, in nats.
    divergences: Vec<f64>,
    /// Positions whose most probable token is the same.
    agree: usize,
    /// Sum of what the text's own tokens are improbable by, in nats.
    surprise: f64,
    /// Of each text that was generated: tokens before the first that differs.
    same: Vec<u32>,
    /// Texts that were generated and are the same to their end.
    whole: usize,
}

impl Distance {
    /// What is told.
    pub(super) const COLUMNS: [&str; 7] = [
        "KL, mean",
        "KL, 99%",
        "KL, largest",
        "same first choice",
        "perplexity",
        "same generated texts",
        "same tokens, median",
    ];

    /// Adds a position: the logits as they should be, as they are, and the token that the text has next.
    pub(super) fn add(&mut self, exact: &[f32], logits: &[f32], next: Token) {
        let (exact_total, total) = (log_total(exact), log_total(logits));
        let divergence = exact.iter().zip(logits).map(|(&exact, &logit)| {
            let (exact, log) = (f64::from(exact) - exact_total, f64::from(logit) - total);
            exact.exp() * (exact - log)
        });
        self.divergences.push(divergence.sum());
        self.agree += usize::from(most_probable(exact) == most_probable(logits));
        self.surprise += total - f64::from(logits[next as usize]);
    }

    /// Adds a generated text, of whose first tokens so many are the same.
    pub(super) fn generated(&mut self, same: u32, tokens: u32) {
        self.same.push(same);
        self.whole += usize::from(same == tokens);
    }

    /// Returns the cells of [`Distance::COLUMNS`].
    pub(super) fn cells(&self) -> [String; 7] {
        let positions = self.divergences.len() as f64;
        let (mut divergences, mut same) = (self.divergences.clone(), self.same.clone());
        divergences.sort_by(f64::total_cmp);
        same.sort_unstable();
        let at = |share: f64| divergences[((positions - 1.0) * share) as usize];
        [
            format!("{:.6}", divergences.iter().sum::<f64>() / positions),
            format!("{:.6}", at(0.99)),
            format!("{:.6}", at(1.0)),
            format!("{:.2}%", self.agree as f64 / positions * 100.0),
            format!("{:.3}", (self.surprise / positions).exp()),
            format!("{} of {}", self.whole, same.len()),
            same[same.len() / 2].to_string(),
        ]
    }
}

/// Returns the most probable token, the lowest of several.
pub(super) fn most_probable(logits: &[f32]) -> Token {
    let best = logits.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(token, _)| token as Token)
}

/// Returns the logarithm of the sum of the exponentials.
fn log_total(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    largest + logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_no_distance_from_itself_and_a_known_one_from_another() {
        let (half, quarter) = (0.5_f32.ln(), 0.25_f32.ln());
        let mut distance = Distance::default();
        distance.add(&[half, quarter, quarter], &[half + 3.0, quarter + 3.0, quarter + 3.0], 0);
        assert!(distance.divergences[0].abs() < 1e-6 && distance.agree == 1);
        // 0.5 ln(0.5 / 0.25) + 0.25 ln(0.25 / 0.5) + 0
        distance.add(&[half, quarter, quarter], &[quarter, half, quarter], 1);
        assert!((distance.divergences[1] - 0.25 * 2_f64.ln()).abs() < 1e-6, "{:?}", distance.divergences);
        assert_eq!(distance.agree, 1);
        assert!((distance.surprise - 2.0 * 2_f64.ln()).abs() < 1e-6, "{}", distance.surprise);
        distance.generated(3, 4);
        distance.generated(4, 4);
        assert_eq!((distance.whole, distance.cells()[6].as_str()), (1, "4"));
    }
}
