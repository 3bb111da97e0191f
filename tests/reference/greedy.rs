//! Greedy tokens beside those of transformers, step by step. `greedy.py` says what a golden holds.
//!
//! Kernels for quantised weights round activations to 8 bits, and transformers does not. So logits differ by rounding,
//! and where two of them are nearly equal, either token may come. Each step is computed from the tokens of the golden,
//! whatever was sampled before it: a text that parts at a near-tie is compared to its end.

use crate::run::{Cut, Run};
use domain::Token;
use engine::cpu::CpuModel;
use serde::Deserialize;
use std::sync::Arc;

/// A prompt, and what transformers decoded after it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Greedy {
    /// The prompt.
    pub(crate) prompt: Vec<Token>,
    /// The best token of each step.
    pub(crate) answer: Vec<Token>,
    /// The second best ones.
    rivals: Vec<Token>,
    /// How far the logits of the best are ahead of those of the second best.
    leads: Vec<f32>,
    /// The same, where transformers' activations are rounded to 8 bits. Negative: the rival is ahead.
    rounded_leads: Vec<f32>,
}

/// How far the engine is from transformers in some steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Distance {
    /// Steps.
    pub(crate) steps: usize,
    /// Steps in which the engine samples another token.
    pub(crate) other: usize,
    /// The largest lead of a step in which it does.
    pub(crate) other_lead: f32,
    /// The largest error of a lead.
    pub(crate) error: f32,
    /// The largest error of a lead, beside transformers with rounded activations.
    pub(crate) rounded_error: f32,
    /// The sum of the squares of the errors of leads.
    squares: f64,
    /// The same of transformers with rounded activations.
    rounded_squares: f64,
}

impl Greedy {
    /// Returns it with so many steps at most.
    pub(crate) fn first(&self, steps: usize) -> Self {
        let mut first = self.clone();
        first.answer.truncate(steps);
        first
    }

    /// Decodes the answer, and returns how far the engine is from transformers.
    pub(crate) fn distance(&self, model: &Arc<CpuModel>, cut: Cut) -> Distance {
        let decoded = &self.answer[..self.answer.len() - 1];
        let mut run = Run::new(Arc::clone(model), self.prompt.len() + decoded.len(), cut);
        let outcome = run.sequence(&self.prompt, decoded, cut.chunk);
        let mut distance = Distance::default();
        for (step, &token) in self.answer.iter().enumerate() {
            let (logits, sampled) = &outcome[&((self.prompt.len() - 1 + step) as u32)];
            let lead = logits[token as usize] - logits[self.rivals[step] as usize];
            assert!(lead.is_finite(), "{lead} at step {step}");
            distance.add_step(lead, *sampled == token, self.leads[step], self.rounded_leads[step]);
        }
        distance
    }
}

impl Distance {
    /// Adds a step with the engine's lead, and those of transformers, plain and rounded.
    fn add_step(&mut self, found: f32, is_equal: bool, lead: f32, rounded: f32) {
        self.steps += 1;
        self.error = self.error.max((found - lead).abs());
        self.rounded_error = self.rounded_error.max((found - rounded).abs());
        self.squares += f64::from(found - lead).powi(2);
        self.rounded_squares += f64::from(rounded - lead).powi(2);
        if !is_equal {
            self.other += 1;
            self.other_lead = self.other_lead.max(lead);
        }
    }

    /// Adds the steps of another text.
    pub(crate) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.other += other.other;
        self.other_lead = self.other_lead.max(other.other_lead);
        self.error = self.error.max(other.error);
        self.rounded_error = self.rounded_error.max(other.rounded_error);
        self.squares += other.squares;
        self.rounded_squares += other.rounded_squares;
    }

    /// Returns the typical errors of a lead, as roots of mean squares: the engine's, and that of transformers with
    /// rounded activations.
    pub(crate) fn typical_errors(&self) -> [f64; 2] {
        [self.squares, self.rounded_squares].map(|squares| (squares / self.steps as f64).sqrt())
    }
}
