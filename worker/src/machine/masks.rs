//! Masks: which tokens the samples of a step may take, where a grammar says so.
//!
//! A step is submitted before the step ahead of it has ended, so before its masks can be known. They are given when the
//! step is the oldest in flight: by then the sequences have all tokens that it goes on from.

use super::Machine;
use domain::plan::{Mask, StepPlan, TokenSet};
use domain::session::Failure;
use domain::{SeqKey, Time};
use std::sync::Arc;

/// Returns the samples of a plan that need a mask: their numbers, and the sequences that they are taken of.
pub(super) fn masked(plan: &StepPlan) -> Vec<(u32, SeqKey)> {
    let samples = plan.spans.iter().flat_map(|span| span.samples.iter().map(|sample| (span.key, sample.masked)));
    let masked = (0..).zip(samples).filter(|(_, (_, masked))| *masked);
    masked.map(|(number, (key, _))| (number, key)).collect()
}

impl Machine {
    /// Gives the device the masks of the oldest step in flight, unless it has them. A sequence whose grammar has
    /// nothing to go on with fails.
    pub(super) fn give_masks(&mut self, now: Time) {
        let Some(step) = self.in_flight.front_mut().filter(|step| step.refused.is_none()) else { return };
        let (id, masked) = (step.id, std::mem::take(&mut step.masked));
        if masked.is_empty() {
            return;
        }
        let mut masks: Vec<Mask> = Vec::with_capacity(masked.len());
        let mut last = None;
        for (sample, key) in masked {
            // The choices of a prompt go on from the same tokens.
            let allowed = match last.take().filter(|(of, _)| *of == key) {
                Some((_, allowed)) => allowed,
                None => self.allowed(now, key),
            };
            last = Some((key, allowed.clone()));
            masks.push(Mask { sample, allowed });
        }
        if let Err(error) = self.device.masks(id, masks) {
            // The step failed with the one before it, and is computed again.
            tracing::debug!(worker = self.core.config.name, step = id.0, %error, "masks were not taken");
        }
    }

    /// Returns the tokens that a sequence may go on with. Any, for one that has ended or fails here.
    fn allowed(&mut self, now: Time, key: SeqKey) -> Arc<TokenSet> {
        let vocab = self.device.vocab();
        let any = || Arc::new(TokenSet::of(vocab, 0..vocab as u32));
        let Some(sequence) = self.core.sequences.get_mut(&key).filter(|sequence| !sequence.closing) else {
            return any();
        };
        let Some(guide) = &mut sequence.guide else { return any() };
        match guide.allowed(sequence.tokens.output(), &sequence.params.stop_tokens) {
            Ok(allowed) => Arc::new(allowed),
            Err(error) => {
                self.fail_attempt(now, key.request, key.epoch, Failure::Invalid, &error.to_string());
                any()
            }
        }
    }
}
