//! Lifts: what a prompt will need of the disk or the store is read into the host tier while it waits for room on the
//! device, from where it comes sooner when there is room.
//!
//! The router sends a prompt to its workers as soon as it has placed it, so a prompt that waits does so here, and its
//! place in the queue and how long what runs may still take say when it will have room. Prompts are served in the order
//! of that deadline, and nothing is begun that would come too late: it would be read twice. A tier is lifted from while
//! no load reads from it; so nobody waits longer for that, and the measured speeds are those of loads.

use super::prefix;
use crate::state::WorkerState;
use domain::{BlockHash, GroupId, SeqKey, Time};
use kv_manager::tiers::{ReadEnd, Tier, TierLift, TierRead};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tiers::{LOAD_WAIT_MAX, Record};

/// Lifts under way at once.
const LIFTS_MAX: usize = 8;

/// A record to lift, and where it is.
type Liftable = (Tier, GroupId, BlockHash);

/// A lift under way.
#[derive(Debug)]
struct UnderWay {
    prompt: SeqKey,
    lift: TierLift,
    /// The tier that moves it: where it is read, and then where it lands.
    by: Tier,
}

/// What is lifted and will be, for prompts that wait for room.
#[derive(Debug, Default)]
pub(crate) struct Lifts {
    /// Prompts that nobody looked at yet, the first one first.
    queue: VecDeque<SeqKey>,
    /// The prompt that is served, and what is still to be lifted for it.
    serving: Option<(SeqKey, VecDeque<Liftable>)>,
    under_way: Vec<UnderWay>,
    /// Prompts that wait still, for which something was lifted or is.
    served: BTreeSet<SeqKey>,
    /// The prompt that has room and waits for its lifts to end, and since when.
    stopping: Option<(SeqKey, Time)>,
}

impl Lifts {
    /// Lifts under way, and prompts that something is or will be lifted for.
    pub(crate) fn len(&self) -> usize {
        self.under_way.len() + self.queue.len() + usize::from(self.serving.is_some()) + self.served.len()
    }

    /// The prompt waits for room, behind all that wait already.
    pub(super) fn wait(&mut self, prompt: SeqKey) {
        self.queue.push_back(prompt);
    }

    /// Nothing more is begun for the prompt.
    fn stop(&mut self, prompt: SeqKey) {
        self.queue.retain(|&waits| waits != prompt);
        self.serving.take_if(|(serves, _)| *serves == prompt);
    }

    /// Lifts under way for the prompt.
    fn of(&self, prompt: SeqKey) -> impl Iterator<Item = &UnderWay> {
        self.under_way.iter().filter(move |one| one.prompt == prompt)
    }

    /// The lift was read, and lands now.
    fn lands(&mut self, lift: &TierLift) {
        let read = self.under_way.iter_mut().filter(|one| one.lift.to == lift.to);
        read.for_each(|one| one.by = lift.to.tier);
    }

    fn ended(&mut self, lift: &TierLift) {
        self.under_way.retain(|one| one.lift.to != lift.to);
    }
}

/// When so many tokens are free: sequences end after so many seconds each, and give back so many tokens. Infinite:
/// these are not enough.
fn room_after(mut ends: Vec<(f32, u32)>, mut missing: u64) -> f32 {
    ends.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let last = ends.into_iter().find(|(_, tokens)| {
        missing = missing.saturating_sub(u64::from(*tokens));
        missing == 0
    });
    last.map_or(f32::INFINITY, |(seconds, _)| seconds)
}

impl WorkerState {
    /// Begins to lift what prompts that wait for room will need, as much as may be under way.
    pub(crate) fn lift(&mut self) {
        if !self.tiers.contains_key(&Tier::Host) {
            return;
        }
        let mut room = None;
        while self.lifts.under_way.len() < LIFTS_MAX {
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
            if self.rates.is_asked(tier) || !self.kv.may_lift(group) {
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
                self.lifts.under_way.push(UnderWay { prompt, lift, by: tier });
                self.lifts.served.insert(prompt);
                self.tier(tier).lift(prompt, lift);
            }
        }
    }

    /// What is worth lifting for a prompt: what would come sooner from the host tier than from where it is, if that is
    /// sooner than computing it.
    fn liftable(&mut self, prompt: SeqKey) -> VecDeque<Liftable> {
        let Some(sequence) = self.sequences.get(&prompt) else { return VecDeque::new() };
        let chain = prefix(sequence, sequence.tokens.len() as u32, self.config.layout.block_tokens);
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

    /// How long one more record of the tier takes behind those that are lifted from there.
    fn lift_s(&self, tier: Tier, group: GroupId) -> f32 {
        let of_tier = self.lifts.under_way.iter().filter(|one| one.lift.from.tier == tier);
        let before: u64 = of_tier.map(|one| self.record_bytes(one.lift.from.slot.group)).sum();
        self.rates.load_s(&[(tier, before + self.record_bytes(group))])
    }

    /// How long the prompt, which waits for room, will wait for it: until so many of those that run have said all they
    /// may that there is room for it and for all before it. They may end sooner; then what is lifted too late was read
    /// in vain.
    fn room_in_s(&self, prompt: SeqKey) -> f32 {
        let own = self.sequences.get(&prompt).map_or(0, |sequence| sequence.tokens.len() as u64);
        let needed = self.scheduler.tokens_before(prompt, |key| self.is_held(key)) + own;
        let running = self.sequences.iter().filter(|(key, _)| self.kv.is_open(**key));
        let ends = running.map(|(_, sequence)| {
            let (tokens, outputs) = (sequence.tokens.len() as u32, sequence.outputs());
            let prompt_s = if outputs == 0 { self.rates.compute_s(0..tokens) } else { 0.0 };
            let left = sequence.params.max_tokens.saturating_sub(outputs).max(1);
            (prompt_s + left as f32 * self.rates.decode_s(), tokens)
        });
        room_after(ends.collect(), needed.saturating_sub(self.kv.room_tokens()))
    }

    /// A record was read to be lifted, or was not. If its prompt waits still, it goes to the host tier.
    pub(super) fn lifted(
        &mut self,
        prompt: SeqKey,
        lift: TierLift,
        end: ReadEnd,
        record: Option<Record>,
        elapsed: Duration,
    ) {
        let bytes = self.record_bytes(lift.from.slot.group);
        self.meters.tiers.read(lift.from.tier, end, bytes, elapsed);
        self.kv.lifted(&lift, end);
        match record.filter(|_| end == ReadEnd::Good) {
            Some(record) if self.lifts.served.contains(&prompt) => {
                self.lifts.lands(&lift);
                self.tier(lift.to.tier).land(prompt, lift, record);
            }
            _ => {
                self.lifts.ended(&lift);
                if end == ReadEnd::Good {
                    self.kv.landed(&lift, false);
                }
            }
        }
    }

    /// A record that was lifted was written to the host tier, or was not.
    pub(super) fn landed(&mut self, prompt: SeqKey, lift: TierLift, there: bool, elapsed: Duration) {
        self.lifts.ended(&lift);
        self.kv.landed(&lift, there);
        if there {
            self.meters.tiers.lifted(lift.to.tier, self.record_bytes(lift.to.slot.group), elapsed);
        }
        if !self.lifts.served.contains(&prompt) {
            self.kv.forget_lifts(&[lift.hash]);
        }
    }

    /// The prompt has room: nothing more is lifted for it, and what has not come yet it will read itself. Whether all
    /// lifts for it have ended, so that nothing is read twice at once; a tier that ends none of them is not waited for
    /// beyond [`LOAD_WAIT_MAX`].
    pub(super) fn stop_lifts(&mut self, now: Time, prompt: SeqKey) -> bool {
        self.lifts.stop(prompt);
        let tiers: BTreeSet<Tier> = self.lifts.of(prompt).map(|one| one.by).collect();
        if tiers.is_empty() {
            self.lifts.stopping = None;
            return true;
        }
        match self.lifts.stopping.filter(|(of, _)| *of == prompt) {
            None => {
                self.lifts.stopping = Some((prompt, now));
                self.tiers.values_mut().for_each(|tier| tier.cancel(prompt));
                false
            }
            Some((_, since)) if now.since(since) < LOAD_WAIT_MAX => false,
            Some(_) => {
                for tier in tiers {
                    let reason = "what it was to lift was waited for, and nothing was moved meanwhile";
                    self.rely(tier, reason, |tier| tier.overdue(now));
                }
                true
            }
        }
    }

    /// A load reads these records itself: lifts under way of any of them are given up, with what else is being lifted
    /// for their prompts.
    pub(super) fn give_way(&mut self, reads: &[TierRead]) {
        let doubled = |lift: &TierLift| reads.iter().any(|read| read.place == lift.from);
        let prompts: BTreeSet<SeqKey> =
            self.lifts.under_way.iter().filter(|one| doubled(&one.lift)).map(|one| one.prompt).collect();
        for prompt in prompts {
            self.tiers.values_mut().for_each(|tier| tier.cancel(prompt));
        }
    }

    /// The prompt waits for room no more, and read what it needed: what else was lifted for it was so in vain.
    pub(super) fn forget_lifts(&mut self, prompt: SeqKey) {
        self.lifts.stop(prompt);
        if !self.lifts.served.remove(&prompt) {
            return;
        }
        if self.lifts.of(prompt).next().is_some() {
            self.tiers.values_mut().for_each(|tier| tier.cancel(prompt));
        }
        if let Some(sequence) = self.sequences.get(&prompt) {
            self.kv.forget_lifts(&sequence.chain);
        }
    }

    fn record_bytes(&self, group: GroupId) -> u64 {
        self.config.layout.stored_bytes(usize::from(group.0)) as u64
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
