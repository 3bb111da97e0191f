//! Lifts: while a prompt waits for room on the device, what it will need of the disk or the store is read into the host
//! tier, from where it is loaded sooner.
//!
//! The router sends a prompt to its workers as soon as it has placed it, so a prompt that waits does so here. Its place
//! in the queue, and how long running sequences may still take, say when it will have room. Prompts are served in the
//! order of that time. A lift that would end later is not begun: its record would be read twice. A tier is lifted from
//! only while no load reads from it, so no prompt waits longer because of lifts, and measured speeds are those of
//! loads.

use super::lift_queue::{LiftInProgress, Liftable};
use super::loader::{Loader, cacheable};
use domain::{GroupId, SeqKey, Time};
use kv_manager::tiers::{ReadEnd, Tier, TierLift, TierRead};
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;
use tiers::{LOAD_WAIT_MAX, Record};

/// Lifts in progress at most.
const LIFTS_MAX: usize = 8;

/// Returns after how many seconds so many missing tokens are free, if sequences end after so many seconds each and give
/// back so many tokens. Infinite: these are not enough.
fn room_after(mut ends: Vec<(f32, u32)>, mut missing: u64) -> f32 {
    ends.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let last = ends.into_iter().find(|(_, tokens)| {
        missing = missing.saturating_sub(u64::from(*tokens));
        missing == 0
    });
    last.map_or(f32::INFINITY, |(seconds, _)| seconds)
}

impl Loader<'_> {
    /// Begins lifts for prompts that wait for room, up to [`LIFTS_MAX`].
    pub(crate) fn begin_lifts(&mut self) {
        if !self.tiers.contains_key(&Tier::Host) {
            return;
        }
        let mut room = None;
        while self.lifts.in_progress.len() < LIFTS_MAX {
            let Some((prompt, records)) = &mut self.lifts.serving else {
                let Some(next) = self.lifts.queue.pop_front() else { return };
                self.lifts.serving = Some((next, self.liftable(next)));
                room = None;
                continue;
            };
            let Some(&(tier, group, hash)) = records.front() else {
                self.lifts.serving = None;
                continue;
            };
            let prompt = *prompt;
            if self.rates.is_reading(tier) || !self.kv.may_lift(group) {
                return;
            }
            let room_s = *room.get_or_insert_with(|| self.room_in_s(prompt));
            let is_late = self.lift_s(tier, group) > room_s;
            let Some((_, records)) = &mut self.lifts.serving else { return };
            if is_late {
                records.retain(|&(from, ..)| from != tier);
                continue;
            }
            records.pop_front();
            let Some(sequence) = self.sequences.get(&prompt) else { continue };
            if let Some(lift) = self.kv.lift(tier, group, hash, sequence.scope.tenant()) {
                self.lifts.in_progress.push(LiftInProgress { prompt, lift, by: tier });
                self.lifts.served.insert(prompt);
                self.tier(tier).lift(prompt, lift);
            }
        }
    }

    /// Returns the records that are worth lifting for a prompt: those that the host tier would deliver sooner than
    /// their own tier, if loading from the host tier is sooner than computing.
    fn liftable(&mut self, prompt: SeqKey) -> VecDeque<Liftable> {
        let Some(sequence) = self.sequences.get(&prompt) else { return VecDeque::new() };
        let chain = cacheable(&sequence.chain, sequence.tokens.len() as u32, self.config.layout.block_tokens);
        let cached = self.kv.cached_tokens(chain);
        let loadable = self.kv.loadable_tokens(chain, cached);
        if loadable == cached {
            return VecDeque::new();
        }
        let mut records = self.kv.liftable(chain, loadable);
        let bytes = records.iter().map(|&(_, group, _)| self.record_bytes(group)).sum();
        if self.rates.load_s(&[(Tier::Host, bytes)]) >= self.rates.compute_s(cached..loadable) {
            return VecDeque::new();
        }
        records.retain(|&(tier, ..)| self.rates.may_be_faster(Tier::Host, tier));
        records.into()
    }

    /// Predicts the seconds of one more record of the tier, behind those that are being lifted from there.
    fn lift_s(&self, tier: Tier, group: GroupId) -> f32 {
        let of_tier = self.lifts.in_progress.iter().filter(|one| one.lift.from.tier == tier);
        let before: u64 = of_tier.map(|one| self.record_bytes(one.lift.from.slot.group)).sum();
        self.rates.load_s(&[(tier, before + self.record_bytes(group))])
    }

    /// Predicts after how many seconds a waiting prompt has room: when enough running sequences have reached their
    /// longest answer that there is room for the prompt and for all before it. They may end sooner. A lift that is too
    /// late then was in vain.
    fn room_in_s(&self, prompt: SeqKey) -> f32 {
        let own = self.sequences.get(&prompt).map_or(0, |sequence| sequence.tokens.len() as u64);
        let needed = self.scheduler.claim_before(prompt, |key| self.is_held(key)).tokens + own;
        let running = self.sequences.iter().filter(|(key, _)| self.kv.is_open(**key));
        let ends = running.map(|(_, sequence)| {
            let (tokens, outputs) = (sequence.tokens.len() as u32, sequence.outputs());
            let prompt_s = if outputs == 0 { self.rates.compute_s(0..tokens) } else { 0.0 };
            let left = sequence.params.max_tokens.saturating_sub(outputs).max(1);
            (prompt_s + left as f32 * self.rates.decode_s(), tokens)
        });
        room_after(ends.collect(), needed.saturating_sub(self.kv.room_tokens()))
    }

    /// Handles the end of a lift's read. If its prompt still waits, the record goes to the host tier.
    pub(super) fn on_lifted(
        &mut self,
        prompt: SeqKey,
        lift: TierLift,
        end: ReadEnd,
        record: Option<Record>,
        elapsed: Duration,
    ) {
        let bytes = self.record_bytes(lift.from.slot.group);
        self.meters.read(lift.from.tier, end, bytes, elapsed);
        self.kv.lifted(&lift, end);
        match record.filter(|_| end == ReadEnd::Good) {
            Some(record) if self.lifts.served.contains(&prompt) => {
                self.lifts.on_landing(&lift);
                self.tier(lift.to.tier).land(prompt, lift, record);
            }
            _ => {
                self.lifts.remove(&lift);
                if end == ReadEnd::Good {
                    self.kv.landed(&lift, false);
                }
            }
        }
    }

    /// Handles the end of a lift's write to the host tier. `there`: the record is in its place.
    pub(super) fn on_landed(&mut self, prompt: SeqKey, lift: TierLift, there: bool, elapsed: Duration) {
        self.lifts.remove(&lift);
        self.kv.landed(&lift, there);
        if there {
            self.meters.lifted(lift.to.tier, self.record_bytes(lift.to.slot.group), elapsed);
        }
        if !self.lifts.served.contains(&prompt) {
            self.kv.forget_lifts(&[lift.hash]);
        }
    }

    /// Stops lifts for a prompt that has room: it reads itself what has not arrived. `Break`: lifts for it have not
    /// ended, and no record is read twice at once. A tier that ends none of them is waited for at most
    /// [`LOAD_WAIT_MAX`].
    pub(super) fn stop_lifts(&mut self, now: Time, prompt: SeqKey) -> ControlFlow<()> {
        self.lifts.stop(prompt);
        let tiers: BTreeSet<Tier> = self.lifts.for_prompt(prompt).map(|one| one.by).collect();
        if tiers.is_empty() {
            self.lifts.stopping = None;
            return ControlFlow::Continue(());
        }
        match self.lifts.stopping.filter(|(of, _)| *of == prompt) {
            None => {
                self.lifts.stopping = Some((prompt, now));
                self.cancel_moves(prompt);
                ControlFlow::Break(())
            }
            Some((_, since)) if now.since(since) < LOAD_WAIT_MAX => ControlFlow::Break(()),
            Some(_) => {
                for tier in tiers {
                    let reason = "what it was to lift was waited for, and nothing was moved meanwhile";
                    self.update_availability(tier, reason, |tier| tier.overdue(now));
                }
                ControlFlow::Continue(())
            }
        }
    }

    /// Cancels lifts of records that a load reads itself, with all other lifts for their prompts.
    pub(super) fn cancel_doubled_lifts(&mut self, reads: &[TierRead]) {
        let is_doubled = |lift: &TierLift| reads.iter().any(|read| read.place == lift.from);
        let prompts: BTreeSet<SeqKey> =
            self.lifts.in_progress.iter().filter(|one| is_doubled(&one.lift)).map(|one| one.prompt).collect();
        for prompt in prompts {
            self.cancel_moves(prompt);
        }
    }

    /// Ends all lifts for a prompt that no longer waits for room. What it has not read by now was lifted in vain.
    pub(super) fn forget_lifts(&mut self, prompt: SeqKey) {
        self.lifts.stop(prompt);
        if !self.lifts.served.remove(&prompt) {
            return;
        }
        if self.lifts.for_prompt(prompt).next().is_some() {
            self.cancel_moves(prompt);
        }
        if let Some(sequence) = self.sequences.get(&prompt) {
            self.kv.forget_lifts(&sequence.chain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::room_after;

    #[test]
    fn there_is_room_when_enough_of_those_that_run_have_ended() {
        let ends = || vec![(3.0, 40), (1.0, 10), (2.0, 20)];
        let after = |missing| room_after(ends(), missing);
        assert_eq!([after(1), after(10), after(11), after(30), after(31), after(70)], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!((after(71), room_after(Vec::new(), 1)), (f32::INFINITY, f32::INFINITY));
    }
}
