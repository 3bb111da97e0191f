//! Masks on their way from the host to the thread that samples. A plan says which of its samples have one; the mask
//! itself may come until sampling begins, since it may depend on a token of the step before.

use crate::device::{MaskError, STEPS_IN_FLIGHT_MAX};
use crate::locks::lock;
use domain::StepId;
use domain::plan::{Mask, Sample, StepPlan, TokenSet};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a step waits for its masks before the spans fail that lack one. The host gives them within milliseconds
/// after the step before has ended; a host that does not is broken.
pub(crate) const MASKS_WAIT_MAX: Duration = Duration::from_secs(10);

/// The masks of a step, by the numbers of its samples. Empty: no sample has one.
pub(crate) type StepMasks = Vec<Option<Arc<TokenSet>>>;

/// The masks of the steps in flight.
#[derive(Debug)]
pub(crate) struct MaskBoard {
    state: Mutex<State>,
    /// Something was given, or the board was closed.
    changed: Condvar,
    vocab: usize,
    /// How long a step waits for its masks.
    wait_max: Duration,
}

#[derive(Debug)]
struct State {
    /// Steps whose samples have masks, in order of submission.
    steps: VecDeque<StepSlots>,
    /// Nothing more is given.
    closed: bool,
}

#[derive(Debug)]
struct StepSlots {
    step: StepId,
    slots: Vec<Slot>,
}

#[derive(Clone, Debug)]
enum Slot {
    /// The sample has no mask.
    Unmasked,
    /// Not given yet.
    Missing,
    Given(Arc<TokenSet>),
}

impl MaskBoard {
    /// Makes a board for a vocabulary of this size, whose steps wait for so long.
    pub(crate) fn new(vocab: usize, wait_max: Duration) -> Self {
        let state = State { steps: VecDeque::with_capacity(STEPS_IN_FLIGHT_MAX), closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), vocab, wait_max }
    }

    /// Makes room for the masks of a plan that is submitted. Without masked samples it does nothing.
    pub(crate) fn expect(&self, plan: &StepPlan) {
        if !has_masks(plan) {
            return;
        }
        let slot = |sample: &Sample| if sample.masked { Slot::Missing } else { Slot::Unmasked };
        let slots = plan.spans.iter().flat_map(|span| &span.samples).map(slot).collect();
        lock(&self.state).steps.push_back(StepSlots { step: plan.step, slots });
    }

    /// Takes masks of a step in flight. Errors: [`MaskError`]; then none of them is taken.
    pub(crate) fn give(&self, step: StepId, masks: Vec<Mask>) -> Result<(), MaskError> {
        let mut state = lock(&self.state);
        let of_step = state.steps.iter_mut().find(|slots| slots.step == step);
        let slots = &mut of_step.ok_or(MaskError::NotExpected { step })?.slots;
        for (at, Mask { sample, allowed }) in masks.iter().enumerate() {
            let is_missing = matches!(slots.get(*sample as usize), Some(Slot::Missing));
            if !is_missing || masks[..at].iter().any(|earlier| earlier.sample == *sample) {
                return Err(MaskError::UnknownSample { step, sample: *sample });
            }
            if allowed.vocab() != self.vocab {
                return Err(MaskError::Vocabulary { tokens: allowed.vocab(), vocab: self.vocab });
            }
        }
        masks.into_iter().for_each(|Mask { sample, allowed }| slots[sample as usize] = Slot::Given(allowed));
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until all masks of a plan are there and takes them. Those that did not come in time, or before the board
    /// was closed, are missing. No mask is waited for of a span that has `failed`, by its number: the host may not be
    /// able to give one.
    pub(crate) fn take(&self, plan: &StepPlan, failed: impl Fn(usize) -> bool) -> StepMasks {
        if !has_masks(plan) {
            return Vec::new();
        }
        let mut needed = Vec::with_capacity(plan.samples());
        for (number, span) in plan.spans.iter().enumerate() {
            needed.resize(needed.len() + span.samples.len(), !failed(number));
        }
        let waits = |state: &mut State| {
            let slots = state.steps.iter().find(|slots| slots.step == plan.step);
            let is_missing = |(slot, needed): (&Slot, &bool)| *needed && matches!(slot, Slot::Missing);
            !state.closed && slots.is_some_and(|slots| slots.slots.iter().zip(&needed).any(is_missing))
        };
        let waited = self.changed.wait_timeout_while(lock(&self.state), self.wait_max, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let given = |slot| if let Slot::Given(allowed) = slot { Some(allowed) } else { None };
        state.remove(plan.step).map(|slots| slots.slots.into_iter().map(given).collect()).unwrap_or_default()
    }

    /// Drops what is left of a step that has ended.
    pub(crate) fn forget(&self, plan: &StepPlan) {
        if has_masks(plan) {
            lock(&self.state).remove(plan.step);
        }
    }

    /// Ends all waits for masks, now and later.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

impl State {
    fn remove(&mut self, step: StepId) -> Option<StepSlots> {
        let at = self.steps.iter().position(|slots| slots.step == step)?;
        self.steps.remove(at)
    }
}

/// Returns whether any sample of a plan has a mask.
fn has_masks(plan: &StepPlan) -> bool {
    plan.spans.iter().flat_map(|span| &span.samples).any(|sample| sample.masked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::plan::Span;
    use domain::{SamplingParams, SeqKey, SlotId};

    const VOCAB: usize = 40;

    /// Returns a plan with one span that samples so often; `true`: with a mask.
    fn plan(step: u64, masked: &[bool]) -> StepPlan {
        let (key, params) = (SeqKey::default(), Arc::new(SamplingParams::default()));
        let sample = |&masked: &bool| Sample { key, row: 0, params: params.clone(), seed: 0, index: 0, masked };
        let samples = masked.iter().map(sample).collect();
        let (inputs, scores) = Default::default();
        let span = Span { key, slot: SlotId(0), start: 0, inputs, samples, scores, hidden: None, adapter: None };
        StepPlan { step: StepId(step), spans: vec![span], ..StepPlan::default() }
    }

    fn mask(sample: u32, vocab: usize) -> Mask {
        Mask { sample, allowed: Arc::new(TokenSet::none(vocab)) }
    }

    #[test]
    fn only_masks_that_are_waited_for_are_taken() {
        let board = MaskBoard::new(VOCAB, Duration::ZERO);
        let plan = plan(3, &[true, false, true]);
        assert_eq!(board.give(StepId(3), Vec::new()), Err(MaskError::NotExpected { step: StepId(3) }));
        board.expect(&plan);
        let unknown = |sample| Err(MaskError::UnknownSample { step: StepId(3), sample });
        assert_eq!(board.give(StepId(3), vec![mask(0, VOCAB), mask(1, VOCAB)]), unknown(1));
        assert_eq!(board.give(StepId(3), vec![mask(0, VOCAB), mask(0, VOCAB)]), unknown(0));
        assert_eq!(board.give(StepId(3), vec![mask(3, VOCAB)]), unknown(3));
        let other = Err(MaskError::Vocabulary { tokens: 39, vocab: VOCAB });
        assert_eq!(board.give(StepId(3), vec![mask(2, 39)]), other);
        // None of these was taken.
        assert_eq!(board.give(StepId(3), vec![mask(2, VOCAB)]), Ok(()));
        assert_eq!(board.give(StepId(3), vec![mask(2, VOCAB)]), unknown(2));
        // What did not come in time is missing, and nothing more is taken.
        assert_eq!(board.take(&plan, |_| false).iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(board.give(StepId(3), vec![mask(0, VOCAB)]), Err(MaskError::NotExpected { step: StepId(3) }));
    }

    #[test]
    fn a_step_that_ends_otherwise_leaves_nothing() {
        let board = MaskBoard::new(VOCAB, Duration::ZERO);
        let (plain, masked) = (plan(1, &[false]), plan(2, &[true]));
        board.expect(&plain);
        board.expect(&masked);
        assert!(board.take(&plain, |_| false).is_empty());
        board.forget(&masked);
        assert!(lock(&board.state).steps.is_empty());
    }

    #[test]
    fn the_mask_of_a_span_that_failed_is_not_waited_for() {
        let board = MaskBoard::new(VOCAB, Duration::from_secs(86_400));
        let masked = plan(2, &[true]);
        board.expect(&masked);
        assert_eq!(board.take(&masked, |span| span == 0).len(), 1);
    }

    #[test]
    fn nobody_waits_for_a_board_that_is_closed() {
        // A day: the test would not end.
        let board = MaskBoard::new(VOCAB, Duration::from_secs(86_400));
        let masked = plan(2, &[true]);
        board.expect(&masked);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| board.take(&masked, |_| false));
            board.close();
            assert_eq!(waits.join().expect("it does not panic").len(), 1);
        });
    }
}
