//! Steps: schedule, submit, apply. While one step runs, the next one is planned: its inputs may be tokens that the step
//! that runs is still to sample. A sequence that turns out to have ended is in the next step all the same. What that
//! computes of it is dropped.

use super::Machine;
use super::masks::masked;
use crate::migration;
use crate::retry::Retry;
use crate::sequence::PROMPT;
use domain::plan::{BlockCopy, FailedSpan, Sampled, StepOutput, StepPlan};
use domain::planted_bugs::{self, Bug};
use domain::session::Failure;
use domain::{ProgressWord, SeqKey, StepId, Time};
use engine::device::SubmitError;
use scheduler::{Schedule, Work};
use std::slice;
use std::sync::Arc;
use telemetry::failpoint::{self, FailPoint};

/// A step that the device computes, or will.
pub(super) struct StepInFlight {
    pub(super) id: StepId,
    /// When it was submitted, or the one before it ended: when the device began with it, for all that is known here.
    begun: Time,
    /// The sequences that it computes.
    pub(super) work: Vec<Work>,
    /// The copies on write that it begins with.
    copies: Vec<(SeqKey, BlockCopy)>,
    /// The process was paused while the step ran, so the time that it took says nothing.
    pub(super) disturbed: bool,
    /// It is a part of a step that failed.
    is_part: bool,
    /// Its samples that need a mask which the device does not have yet, with their sequences.
    pub(super) masked: Vec<(u32, SeqKey)>,
    /// Why the device did not take it, if it did not. It fails when the steps before it have ended.
    pub(super) refused: Option<String>,
}

/// A prompt whose next tokens turned up in the cache: another prompt computed them.
struct CaughtUp {
    key: SeqKey,
    from: u32,
    to: u32,
}

impl Machine {
    /// Schedules steps and submits them, as many as the device takes. While parts of a failed step are to be computed,
    /// no step starts.
    pub(super) fn start_steps(&mut self, now: Time) {
        while self.retry.is_none() && self.in_flight.len() < self.core.config.steps_in_flight {
            let (mut schedule, caught_up) = self.schedule(now);
            let work = std::mem::take(&mut schedule.work);
            let is_idle = work.is_empty();
            self.apply_schedule(now, schedule, caught_up);
            let copies = std::mem::take(&mut self.core.copies);
            self.submit(now, work, copies, false);
            // The device may have refused the step, which left parts of it to be computed.
            self.continue_retry(now);
            if is_idle {
                return;
            }
        }
    }

    fn schedule(&mut self, now: Time) -> (Schedule, Vec<CaughtUp>) {
        let ahead = self.in_flight.back().map_or(&[][..], |step| &step.work);
        let (scheduler, mut space) = self.core.scheduler_and_space(now, ahead);
        let schedule = scheduler.schedule(&mut space);
        let caught_up = space.caught_up.into_iter().map(|(key, from, to)| CaughtUp { key, from, to });
        (schedule, caught_up.collect())
    }

    /// Does what follows from a schedule before its work is submitted.
    fn apply_schedule(&mut self, now: Time, schedule: Schedule, caught_up: Vec<CaughtUp>) {
        schedule.impossible.into_iter().for_each(|key| self.fail_impossible(now, key));
        self.core.meters.preemptions.increment(schedule.preempted.len() as u64);
        for key in schedule.preempted {
            // Its memory is gone, so a reader cannot go on from it.
            self.offers.withdraw(&mut self.core, key);
        }
        for (key, cached_tokens) in schedule.admitted {
            self.prompt_admitted(now, key, cached_tokens);
        }
        for CaughtUp { key, from, to } in caught_up {
            let core = &mut self.core;
            core.meters.prefix_hit_tokens.increment(u64::from(to - from));
            if let Some(sequence) = core.sequences.get_mut(&key) {
                // Only what was cached, here or in a tier, when the prompt came counts as cached.
                sequence.cached_tokens += to.min(sequence.loadable_tokens).saturating_sub(from);
                sequence.sources.take(from, to, core.config.layout.block_tokens);
            }
        }
    }

    /// A prompt got its blocks. Its computation begins with the next step.
    fn prompt_admitted(&mut self, now: Time, key: SeqKey, cached_tokens: u32) {
        let core = &mut self.core;
        core.meters.prefix_hit_tokens.increment(u64::from(cached_tokens));
        if let Some(sequence) = core.sequences.get_mut(&key) {
            sequence.cached_tokens = cached_tokens;
            sequence.sources.begin(now, cached_tokens, core.config.layout.block_tokens);
            self.offer_prompt(now, key);
        }
        if key.choice != PROMPT {
            self.core.loader().load_towards(now, key);
        }
    }

    /// Submits the next part of a step that failed, unless a step is in flight. When no part is left, readers see how
    /// far the device is.
    pub(super) fn continue_retry(&mut self, now: Time) {
        while self.in_flight.is_empty()
            && let Some(retry) = &mut self.retry
        {
            match retry.next() {
                Some(part) => {
                    let copies = std::mem::take(&mut self.core.copies);
                    self.submit(now, part, copies, true);
                }
                None => {
                    self.retry = None;
                    self.word.let_go();
                }
            }
        }
    }

    /// Submits `work` as the next step, with the copies that it needs. If the device refuses one sequence, that one
    /// fails, and the step is submitted without it.
    fn submit(&mut self, now: Time, mut work: Vec<Work>, mut copies: Vec<(SeqKey, BlockCopy)>, is_part: bool) {
        // Each try has the same number: readers receive it before the step runs.
        let id = StepId(self.last_step.0 + 1);
        loop {
            self.drop_closed(&mut work, &mut copies);
            // Blocks of a sequence are kept until the step ends only if the step contains the sequence. So its copies
            // wait for the step that does.
            let in_step = |key: &SeqKey| work.iter().any(|work| work.key == *key);
            let (due, later): (Vec<_>, Vec<_>) = copies.iter().copied().partition(|(key, _)| in_step(key));
            if work.is_empty() {
                self.core.copies = later;
                return;
            }
            self.last_step = id;
            let plan = self.plan_step(id, &work, &due);
            let (rows, masked) = (plan.rows(), masked(&plan));
            match self.device.submit(Arc::new(plan)) {
                Ok(()) => {
                    self.core.meters.batch_rows.record(rows as f64);
                    self.core.copies = later;
                    let (begun, disturbed, refused) = (now, false, None);
                    self.take_off(StepInFlight { id, begun, work, copies: due, disturbed, is_part, masked, refused });
                    self.give_masks(now);
                    failpoint::pass(FailPoint::Step, "submitted");
                    return;
                }
                Err(SubmitError::Invalid { span: Some(span), reason, .. }) => {
                    self.core.slots.close_all();
                    self.core.meters.sequences_failed.increment(1);
                    let refused = work.remove(span);
                    self.fail_work(now, slice::from_ref(&refused), &reason.to_string());
                }
                Err(error) => {
                    self.core.slots.close_all();
                    self.core.copies = later;
                    let refused = Some(error.to_string());
                    let (begun, disturbed) = (now, false);
                    let masked = Vec::new();
                    self.take_off(StepInFlight { id, begun, work, copies: due, disturbed, is_part, masked, refused });
                    return self.fail_refused(now);
                }
            }
        }
    }

    fn take_off(&mut self, step: StepInFlight) {
        step.work.iter().for_each(|work| self.core.in_steps.enter(work.key));
        self.in_flight.push_back(step);
    }

    /// Takes the oldest step out of flight, if `is_due` says so.
    fn land(&mut self, is_due: impl FnOnce(&StepInFlight) -> bool) -> Option<StepInFlight> {
        let step = self.in_flight.pop_front_if(|step| is_due(step))?;
        step.work.iter().for_each(|work| self.core.in_steps.leave(work.key));
        Some(step)
    }

    /// Fails a step that the device did not take, unless a step is in flight before it.
    fn fail_refused(&mut self, now: Time) {
        while let Some(mut step) = self.land(|step| step.refused.is_some()) {
            let reason = step.refused.take().unwrap_or_default();
            self.step_failed(now, step, &reason);
        }
    }

    /// Drops the work and the copies of sequences that were closed since they were scheduled: their attempt failed
    /// because its offer could not be made, say, or was cancelled after the step failed of which this is a part. Their
    /// blocks are free, and may belong to another sequence while the step runs.
    fn drop_closed(&mut self, work: &mut Vec<Work>, copies: &mut Vec<(SeqKey, BlockCopy)>) {
        let core = &mut self.core;
        work.retain(|work| match core.sequences.get(&work.key).map(|sequence| sequence.closing) {
            Some(true) => {
                core.close(work.key);
                false
            }
            is_there => is_there.is_some(),
        });
        copies.retain(|(key, _)| core.sequences.contains_key(key));
    }

    /// Makes the plan of a step, after readers were told what it writes.
    fn plan_step(&mut self, id: StepId, work: &[Work], copies: &[(SeqKey, BlockCopy)]) -> StepPlan {
        let core = &mut self.core;
        for work in work {
            self.offers.writes(core, id, work.key, work.start + work.count);
        }
        let previous = self.in_flight.back().map_or(&[][..], |step| &step.work);
        let copies = copies.iter().map(|&(_, copy)| copy).collect();
        let plan = core.plan(id, copies, work, previous);
        for Work { key, start, count, samples, .. } in work {
            let (worker, request, step) = (&core.config.name, key.request, id.0);
            tracing::trace!(target: "timeline", worker, %request, step, start, count, samples, "planned");
        }
        for work in work {
            core.loader().on_step_planned(work.key, work.start + work.count);
            if planted_bugs::is(Bug::SealedWhenPlanned) && work.key.choice == PROMPT {
                core.kv.written(work.key, work.start + work.count, &core.sequences[&work.key].chain);
            }
        }
        plan
    }

    /// Applies the output of the oldest step in flight: tokens are sent, blocks are sealed, sequences end.
    pub(super) fn apply_output(&mut self, now: Time, output: StepOutput) {
        let Some(step) = self.land(|_| true) else { return };
        if let Some(next) = self.in_flight.front_mut() {
            next.begun = now;
        }
        failpoint::pass(FailPoint::Step, "ended");
        self.measure(&step, &output);
        match output.sampled {
            Ok(sampled) => self.apply_step(now, &step, sampled, &output.failed),
            Err(reason) => self.step_failed(now, step, &reason),
        }
        self.fail_refused(now);
        self.give_masks(now);
    }

    /// Applies a step that succeeded, but for the spans in `failed`.
    fn apply_step(&mut self, now: Time, step: &StepInFlight, sampled: Vec<Sampled>, failed: &[FailedSpan]) {
        let (core, mut sampled) = (&mut self.core, sampled.into_iter());
        let failed = |number: usize| failed.iter().find(|failed| failed.span == number);
        let computed = step.work.iter().enumerate().filter(|(number, _)| failed(*number).is_none());
        core.scheduler.computed(computed.map(|(_, work)| work));
        for (number, work) in step.work.iter().enumerate() {
            if let Some(failed) = failed(number) {
                // Tokens that the step sampled before are sent before the failure.
                self.core.flush_rows();
                self.core.meters.sequences_failed.increment(1);
                self.fail_work(now, slice::from_ref(work), &failed.reason);
            } else {
                let samples = sampled.by_ref().take(usize::from(work.samples)).collect();
                self.apply_work(now, step.begun, work, samples);
            }
        }
        self.core.flush_rows();
    }

    /// Records how long a step took. The rates that routers predict with count neither a step during which the process
    /// was paused nor a step that failed, nor a part of one: placement would send this worker no work for it, so that
    /// the rate would never be measured again.
    fn measure(&mut self, step: &StepInFlight, output: &StepOutput) {
        let core = &mut self.core;
        core.meters.step_time.record(output.elapsed.as_secs_f64());
        core.meters.step_overhead.record(output.elapsed.saturating_sub(output.in_kernels).as_secs_f64());
        if !step.disturbed && self.retry.is_none() && output.sampled.is_ok() {
            core.rates.step(&step.work, output);
        }
    }

    /// Applies what a step computed of one sequence. `begun`: when the step began.
    fn apply_work(&mut self, now: Time, begun: Time, work: &Work, samples: Vec<Sampled>) {
        let (core, key) = (&mut self.core, work.key);
        let Some(sequence) = core.sequences.get(&key) else { return };
        if sequence.closing && !planted_bugs::is(Bug::ClosedRowCounts) {
            return core.close(key);
        }
        // Choices that go on from tokens that a lost worker made are computed each for itself.
        let is_prompt = key.choice == PROMPT || sequence.sources.is_open();
        core.kv.written(key, work.start + work.count, &sequence.chain);
        if work.samples > 0 {
            core.tell_sources(now, key);
        }
        if let Some(timed) = core.attempts.timed(key.request, key.epoch).filter(|_| is_prompt) {
            timed.chunk(begun, now, work.start, work.count);
        }
        if key.choice != PROMPT {
            if is_prompt && work.samples > 0 {
                core.decodes_from_now(key.request, key.epoch);
            }
            for sampled in samples {
                self.core.append(key, sampled);
                migration::token_appended(&mut self.offers, &mut self.core, key);
            }
            return;
        }
        core.meters.prefill_tokens.increment(u64::from(work.count));
        let (worker, request, tokens) = (&core.config.name, key.request, work.start + work.count);
        tracing::trace!(target: "timeline", worker, %request, tokens, "prompt computed");
        if work.samples > 0 {
            let first = core.first_tokens(key, samples);
            // The router receives the first tokens before the worker that takes the prompt over can send the next ones.
            core.flush_rows();
            self.finish_prompt(key, first);
        }
    }

    /// A step failed as a whole. Nothing of it counts, and its sequences are computed again in parts. Readers that wait
    /// for its number see no later one before all that it was to write is written, or withdrawn.
    ///
    /// The step that is in flight behind it fails as well, and is computed again after it: devices keep to that.
    fn step_failed(&mut self, now: Time, step: StepInFlight, reason: &str) {
        let core = &mut self.core;
        if let Some(retry) = self.retry.as_mut().filter(|_| !step.is_part) {
            retry.follow(step.work);
            for (key, copy) in step.copies {
                // What the failed step wrote is written again, to the block that is copied to now. So the block that
                // was offered is not filled.
                self.offers.withdraw(core, key);
                core.copies.push((key, copy));
            }
            return;
        }
        tracing::error!(worker = core.config.name, sequences = step.work.len(), reason, "a step failed");
        core.meters.steps_failed.increment(1);
        // A step copies before its first layer. A copy that was made is not repeated: readers may read its block
        // already.
        if self.word.raised() < ProgressWord::mark(step.id, 0) {
            core.copies.extend(step.copies);
        }
        let word = &self.word;
        let retry = self.retry.get_or_insert_with(|| {
            if !planted_bugs::is(Bug::FailedStepPassesWord) {
                word.hold();
            }
            Retry::new(step.work.len())
        });
        let failed = retry.failed(step.work, self.device.lost().is_some());
        core.meters.sequences_failed.increment(failed.len() as u64);
        self.fail_work(now, &failed, reason);
    }

    /// Fails the attempts of sequences that a step could not compute. What the step was to write of them is void.
    fn fail_work(&mut self, now: Time, work: &[Work], reason: &str) {
        for work in work {
            self.offers.withdraw(&mut self.core, work.key);
        }
        for &Work { key, .. } in work {
            let core = &mut self.core;
            if core.sequences.get(&key).is_some_and(|sequence| sequence.closing) {
                core.close(key);
            } else if core.attempt(key.request, key.epoch).is_some() {
                tracing::error!(worker = core.config.name, request = %key.request, reason, "a sequence failed");
                self.fail_attempt(now, key.request, key.epoch, Failure::Engine, reason);
            }
        }
    }
}
